from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tokmill import storage
from tokmill.errors import StateError, StorageError
from tokmill.storage import (
    PendingFile,
    write_chunks,
    write_file,
)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def run_child(code: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_committed_file_is_complete_and_read_only(tmp_path: Path):
    assert write_file(tmp_path, "a.bin", b"\x01\x02") is True
    assert (tmp_path / "a.bin").read_bytes() == b"\x01\x02"
    assert stat.S_IMODE((tmp_path / "a.bin").stat().st_mode) == 0o444
    assert names(tmp_path) == ["a.bin"]


def test_chunks_become_one_file_or_none(tmp_path: Path):
    assert write_chunks(tmp_path, "a.bin", iter([b"\x01", b"", b"\x02\x03"])) is True
    assert (tmp_path / "a.bin").read_bytes() == b"\x01\x02\x03"

    def broken():
        yield b"half"
        raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        write_chunks(tmp_path, "b.bin", broken())
    assert names(tmp_path) == ["a.bin"]


def test_a_pending_file_is_not_there_under_its_name(tmp_path: Path):
    pending = PendingFile(tmp_path, "a.bin")
    pending.write(b"half")
    (temporary,) = names(tmp_path)
    assert temporary.startswith(f".a.bin.{os.getpid()}-")
    assert temporary.endswith(".tmp")
    pending.discard()
    assert names(tmp_path) == []


def test_the_same_file_of_a_killed_attempt_is_committed_again(tmp_path: Path):
    for _ in range(2):
        assert write_file(tmp_path, "a", b"same") is True
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("kind", ["other bytes", "link", "directory"])
def test_something_else_under_the_name_is_not_replaced(tmp_path: Path, kind):
    path = tmp_path / "a"
    if kind == "link":
        (tmp_path / "b").write_bytes(b"same")
        path.symlink_to(tmp_path / "b")
    elif kind == "directory":
        path.mkdir()
    else:
        path.write_bytes(b"mine")
    before = names(tmp_path)
    with pytest.raises(StateError) as caught:
        write_file(path.parent, path.name, b"same")
    assert str(caught.value) == (
        f"{path}: this run did not write that file: move it away and run the same command again"
    )
    assert names(tmp_path) == before
    assert kind != "other bytes" or path.read_bytes() == b"mine"


def test_the_first_commit_wins_where_it_is_asked_for(tmp_path: Path):
    assert write_file(tmp_path, "a", b"first", first_wins=True) is True
    assert write_file(tmp_path, "a", b"second", first_wins=True) is False
    assert (tmp_path / "a").read_bytes() == b"first"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o444
    assert names(tmp_path) == ["a"]


def test_a_missing_directory_is_one_clear_line(tmp_path: Path):
    path = tmp_path / "no" / "a"
    with pytest.raises(StorageError) as caught:
        write_file(path.parent, path.name, b"x")
    assert str(caught.value) == f"{path}: no such file or directory"


FULL = """
import resource, sys
from pathlib import Path
from tokmill.errors import StorageError
from tokmill.storage import write_file
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_file(Path(sys.argv[1]).parent, Path(sys.argv[1]).name, bytes(1001))
except StorageError as error:
    print(error)
"""


def test_a_full_disk_leaves_no_file_and_the_error_says_how_to_continue(tmp_path: Path):
    child = run_child(FULL, tmp_path / "a.bin")
    assert child.returncode == 0, child.stderr
    assert child.stdout == (
        f"{tmp_path / 'a.bin'}: file too large for this process (ulimit -f) or file system; "
        "parts that are done are kept: make room and run the same command again to continue\n"
    )
    assert names(tmp_path) == []


def test_a_long_file_is_complete_after_syncs_that_drop_its_pages(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "SYNC_BYTES", 1000)
    monkeypatch.setattr(storage, "CACHED_BYTES", 2000)
    pending = storage.PendingFile(tmp_path, "long")
    for i in range(10):
        pending.write(bytes([i]) * 700)
    pending.commit()
    assert (tmp_path / "long").read_bytes() == b"".join(bytes([i]) * 700 for i in range(10))
