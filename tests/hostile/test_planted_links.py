"""A link that a stranger planted where tokmill makes files of its own leads nowhere."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

import tokmill
from tokmill.api.dataset import Dataset
from tokmill.cache import cache_path, keep, kept
from tokmill.errors import StateError, StorageError, TokmillError
from tokmill.mixing import make
from tokmill.place import open_place


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A directory of the user, with a file under each name that a mix gives to its own."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for name in ("request.json", "reasons", "hashes-0", "run-0", "done-survey-0.json", "thesis"):
        (folder / name).write_text("years of work")
    return folder


def state(folder: Path) -> dict[str, Any]:
    return {path.name: (path.read_bytes(), path.lstat().st_mtime_ns) for path in folder.iterdir()}


def mixed(dataset: Dataset, output: Path, **settings: Any) -> Dataset:
    return tokmill.mix(
        [dataset.directory], output=output, shuffle=1, dedup=True, workers=1, progress=False,
        **settings,
    )  # fmt: skip


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", [".mix", "parts", "rejects"])
def test_a_link_in_place_of_a_folder_of_a_mix_is_refused(
    single, elsewhere, tmp_path, name, overwrite
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / name).symlink_to(elsewhere)
    before = state(elsewhere)
    with pytest.raises(StateError, match=re.escape(f"({name})")):
        mixed(single, out, overwrite=overwrite)
    assert state(elsewhere) == before


@pytest.fixture
def stopped(single: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The output of a mix that was stopped before its last step."""

    class Killed(BaseException):
        """A signal."""

    def stop(*arguments: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(make, "write_manifest", stop)
        with pytest.raises(Killed):
            mixed(single, tmp_path / "out")
    return tmp_path / "out"


def test_a_link_in_place_of_a_file_of_a_stopped_mix_is_refused(single, elsewhere, stopped) -> None:
    names = [path.name for path in (stopped / ".mix").iterdir()]
    assert {"request.json", "reasons"} < set(names)
    for name in names:
        path = stopped / ".mix" / name
        data = path.read_bytes()
        path.unlink()
        path.symlink_to(elsewhere / "thesis")
        before = state(elsewhere)
        for overwrite in (False, True):
            with pytest.raises((StateError, StorageError), match=r"\.mix/"):
                mixed(single, stopped, overwrite=overwrite)
        assert state(elsewhere) == before, name
        path.unlink()
        path.write_bytes(data)
    mixed(single, stopped).verify()
    assert not (stopped / ".mix").exists()


def test_a_link_in_place_of_a_lock_or_a_note_is_not_followed(single, elsewhere, tmp_path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / ".lock").symlink_to(elsewhere / "new")
    with pytest.raises(TokmillError, match=r"\.lock"):
        mixed(single, out)
    assert not (elsewhere / "new").exists()
    (out / ".lock").unlink()
    os.mkfifo(out / ".lock")
    with (
        pytest.raises(StorageError, match=r"\.lock: not a regular file"),
        open_place(str(out)).held(),
    ):
        pass


@pytest.mark.parametrize("folder", ["parts", "rejects", ".mix"])
def test_no_method_of_a_place_goes_through_a_link(elsewhere, tmp_path, folder) -> None:
    place, name = open_place(str(tmp_path / "out")), f"{folder}/thesis"
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / folder).symlink_to(elsewhere)
    before = state(elsewhere)
    for write in (place.write, lambda name, data: place.create(name, [data])):
        with pytest.raises(StorageError, match=f"expected the folder {folder}, a link or a file"):
            write(name, b"mine")
    with pytest.raises(FileNotFoundError):
        place.read(name)
    place.remove(name)
    place.remove_folder(name)
    assert place.stamp(name) == ""
    assert place.entries()[folder] is None
    if folder != ".mix":
        with pytest.raises(StorageError, match=f"expected the folder {folder}"):
            place.make_folders()
    assert state(elsewhere) == before


# The cache


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("TOKMILL_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache" / "tokmill"


def test_a_link_in_place_of_the_cache_is_not_followed(cache, elsewhere) -> None:
    elsewhere.chmod(0o755)
    cache.symlink_to(elsewhere)
    before = state(elsewhere)
    keep("key", {"name": "gigatoken"})
    assert kept("key") is None
    assert state(elsewhere) == before
    assert elsewhere.stat().st_mode & 0o777 == 0o755
    cache.unlink()
    keep("key", {"name": "gigatoken"})
    assert kept("key") == {"name": "gigatoken"}


def test_a_pipe_in_place_of_the_cache_is_not_waited_for(cache) -> None:
    cache.mkdir()
    os.mkfifo(cache_path())
    assert kept("key") is None
