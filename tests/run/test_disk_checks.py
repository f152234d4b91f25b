from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from tokmill.errors import StorageError
from tokmill.run.begin import check_file_system
from tokmill.run.finish import run

CALLS = [
    ("link", errno.EPERM),
    ("link", errno.EOPNOTSUPP),
    ("fchmod", errno.ENOSYS),
    ("fsync", errno.EINVAL),
    ("replace", errno.EEXIST),
]


def failing(number: int):
    def call(*arguments: object, **options: object) -> None:
        raise OSError(number, os.strerror(number))

    return call


def names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


@pytest.mark.parametrize(("call", "number"), CALLS)
def test_a_file_system_that_lacks_an_operation_is_refused_before_the_first_byte(
    out, make_config, listener, monkeypatch, call, number
):
    monkeypatch.setattr(os, call, failing(number))
    with pytest.raises(StorageError) as caught:
        run(make_config(), listener)
    monkeypatch.undo()
    assert str(caught.value) == (
        f"{out}: its file system lacks hard links, read-only files (chmod), renames over a file, "
        f"or durable writes and names (fsync): {os.strerror(number).lower()}; without them a "
        "dataset is not safe from a crash: choose an --output on another disk"
    )
    assert names(out) == [".lock"]


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "no space left on device; parts that are done are kept: make room"),
        (errno.EIO, "input/output error"),
    ],
)
def test_another_error_is_reported_unchanged(tmp_path, monkeypatch, number, said):
    monkeypatch.setattr(os, "link", failing(number))
    with pytest.raises(StorageError, match=f"^{tmp_path}: {said}"):
        check_file_system(tmp_path)
    assert names(tmp_path) == []


def test_a_run_that_cannot_fit_writes_nothing(
    tmp_path, configure, write_rows, listener, monkeypatch
):
    source = write_rows(tmp_path / "in.jsonl", [{"text": "hello world " * 20}] * 60)
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=3000, f_frsize=1))
    said = rf"^{tmp_path}/out: no room for this dataset: about 1.* room for 3 kB: make room, or"
    with pytest.raises(StorageError, match=said):
        run(configure(tmp_path / "out", source), listener)
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".lock"]
    assert not listener.plans


def test_a_run_that_may_not_fit_warns_and_a_finished_one_is_not_checked(
    tmp_path, configure, write_rows, listener, monkeypatch
):
    source = write_rows(tmp_path / "in.jsonl", [{"text": "hello world " * 20}] * 60)
    asked: list[object] = []
    of_system = os.statvfs

    def statvfs(path):
        if tmp_path not in Path(path).parents:
            return of_system(path)
        asked.append(path)
        return SimpleNamespace(f_bavail=10_000, f_frsize=1)

    monkeypatch.setattr(os, "statvfs", statvfs)
    config = configure(tmp_path / "out", source)
    run(config, listener)
    (warning,) = listener.warnings
    assert "out: this dataset may not fit: about 1" in warning
    assert warning.endswith("are needed, there is room for 10 kB")
    asked.clear()
    run(config, listener)
    assert asked == []
    (tmp_path / "out/manifest.json").unlink()
    run(config, listener)  # what it wrote before counts as free
    assert asked
    assert len(listener.warnings) == 1
