from __future__ import annotations

import errno
import os
from pathlib import Path
from stat import S_ISDIR

import pytest

from tokmill.errors import StorageError
from tokmill.executors.run import run
from tokmill.run.file_system import check_file_system

CALLS = [
    ("link", errno.EPERM, "hard links"),
    ("link", errno.EOPNOTSUPP, "hard links"),
    ("fchmod", errno.EPERM, "read-only files (chmod)"),
    ("fchmod", errno.ENOSYS, "read-only files (chmod)"),
    ("fsync", errno.EINVAL, "durable writes (fsync)"),
    ("replace", errno.EEXIST, "renames over an existing file"),
]


def failing(number: int):
    def call(*arguments: object) -> None:
        raise OSError(number, os.strerror(number))

    return call


def names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


def test_a_usual_file_system_can_do_everything_and_nothing_is_left(tmp_path):
    check_file_system(tmp_path)
    assert names(tmp_path) == []


@pytest.mark.parametrize(("call", "number", "what"), CALLS)
def test_what_a_file_system_lacks_is_named_before_the_first_byte(
    out, make_config, listener, monkeypatch, call, number, what
):
    monkeypatch.setattr(os, call, failing(number))
    with pytest.raises(StorageError) as caught:
        run(make_config(), listener)
    monkeypatch.undo()
    assert str(caught.value) == (
        f"{out}: its file system has no {what} ({os.strerror(number).lower()}), without which a "
        "dataset is not safe from a crash: choose an --output on another disk"
    )
    assert names(out) == [".lock"]


def test_a_directory_that_cannot_be_synced_is_named(tmp_path, monkeypatch):
    sync = os.fsync

    def files_alone(descriptor: int) -> None:
        if S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", files_alone)
    with pytest.raises(StorageError, match=r"has no durable names \(fsync of a directory\)"):
        check_file_system(tmp_path)
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "no space left on device; what is committed is kept: make room"),
        (errno.EIO, "input/output error"),
    ],
)
def test_another_error_is_said_as_it_is(tmp_path, monkeypatch, number, said):
    monkeypatch.setattr(os, "link", failing(number))
    with pytest.raises(StorageError, match=f"^{tmp_path}: {said}"):
        check_file_system(tmp_path)
    assert names(tmp_path) == []
