from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tokmill.dataset.lock import is_locked
from tokmill.errors import StateError, StorageError
from tokmill.place import open_place
from tokmill.place.directory import locked


def test_a_look_at_the_lock_keeps_no_run_out(tmp_path: Path, monkeypatch):
    with ExitStack() as look:
        look.enter_context(locked(tmp_path, is_shared=True))
        monkeypatch.setattr("tokmill.place.directory.time.sleep", lambda _: look.close())
        with locked(tmp_path):
            assert is_locked(tmp_path)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_not_another_run(tmp_path: Path, monkeypatch, number):
    def no_locks(file: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(StorageError) as caught, locked(tmp_path):
        pass
    assert str(caught.value) == (
        f"{tmp_path}: its file system has no locks ({os.strerror(number).lower()}), so two runs "
        "could write over each other: choose an --output on another disk"
    )


LOCKED = """
import sys
from pathlib import Path
from tokmill.errors import StateError
from tokmill.place.directory import locked
try:
    with locked(Path(sys.argv[1])):
        print("mine")
except StateError as error:
    print(error)
"""


def try_to_lock(directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LOCKED, str(directory)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_a_directory_in_use_by_another_process_is_refused(tmp_path: Path):
    with locked(tmp_path):
        refused = try_to_lock(tmp_path)
    taken = try_to_lock(tmp_path)
    assert refused.stdout == (
        f"{tmp_path}: another run is writing here; wait for it or choose another --output\n"
    )
    assert taken.stdout == "mine\n"


HOLDER = """
import sys
from pathlib import Path
from tokmill.place.directory import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_lock_of_a_killed_process_is_released(tmp_path: Path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StateError), locked(tmp_path):
            pass
        holder.kill()
        holder.wait(timeout=300)
    with locked(tmp_path):
        pass


def test_a_directory_and_its_two_folders_are_listed_and_no_other(tmp_path: Path):
    for name in ("b.bin", "a.bin", "parts/0000000.json", "rejects/.x", "other/inside"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert open_place(str(tmp_path)).entries() == {
        "a.bin": 0, "b.bin": 0, "other": None, "parts/0000000.json": 0, "rejects/.x": 0
    }  # fmt: skip
    assert open_place(str(tmp_path / "none")).entries() == {}
