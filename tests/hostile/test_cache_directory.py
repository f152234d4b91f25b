"""The cache directory is private, and what another user could have put there is not read."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tokmill.cache import cache_path, keep, kept

KEPT = {"key": {"name": "gigatoken"}}


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOKMILL_CACHE_DIR", str(tmp_path / "a/cache"))
    return tmp_path / "a/cache"


@pytest.fixture
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_new_cache_directory_is_private_whatever_the_umask(directory, open_umask):
    keep("key", KEPT["key"])
    assert (directory.parent.stat().st_mode & 0o777, directory.stat().st_mode & 0o777) == (
        0o700,
        0o700,
    )
    assert kept("key") == KEPT["key"]


@pytest.mark.parametrize("how", ["link", "open file", "open directory"])
def test_a_file_that_another_user_could_have_put_there_is_not_read(directory, tmp_path, how):
    keep("key", KEPT["key"])
    path = cache_path()
    if how == "link":
        path.unlink()
        (tmp_path / "planted.json").write_text(json.dumps(KEPT))
        path.symlink_to(tmp_path / "planted.json")
    else:
        (path if how == "open file" else directory).chmod(0o777)
    assert kept("key") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_not_read(directory):
    keep("key", KEPT["key"])
    os.chown(cache_path(), 12345, -1)
    assert kept("key") is None


def test_writing_through_a_planted_link_leaves_its_target(directory, tmp_path):
    target = tmp_path / "target"
    target.write_bytes(b"mine")
    directory.mkdir(parents=True)
    cache_path().symlink_to(target)
    keep("key", KEPT["key"])
    assert target.read_bytes() == b"mine"
    assert not cache_path().is_symlink()
    assert kept("key") == KEPT["key"]
