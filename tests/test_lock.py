from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tokmill.errors import StateError, StorageError
from tokmill.lock import LOCK_NAME, PART_LOCKS, is_locked, locked, locked_parts, parts_locked


def test_the_lock_is_free_again_after_the_run(tmp_path: Path):
    for _ in range(2):
        with locked(tmp_path):
            assert [path.name for path in tmp_path.iterdir()] == [LOCK_NAME]


def test_a_look_at_the_lock_keeps_no_run_out(tmp_path: Path, monkeypatch):
    with ExitStack() as look:
        look.enter_context(locked(tmp_path, is_shared=True))
        monkeypatch.setattr("tokmill.lock.time.sleep", lambda _: look.close())
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


def test_an_error_of_the_lock_itself_is_a_storage_error(tmp_path: Path, monkeypatch):
    def broken(file: int, operation: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", broken)
    with pytest.raises(StorageError, match=r"input/output error$"), locked(tmp_path):
        pass


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path: Path):
    (tmp_path / ".lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match=r"\.lock: "), locked(tmp_path):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_the_lock_is_free_again_after_an_error(tmp_path: Path):
    with pytest.raises(ValueError, match="mine"), locked(tmp_path):
        raise ValueError("mine")
    with locked(tmp_path):
        pass


LOCKED = """
import sys
from pathlib import Path
from tokmill.errors import StateError
from tokmill.lock import locked
try:
    with locked(Path(sys.argv[1])):
        print("mine")
except StateError as error:
    print(error)
"""


def try_to_lock(directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LOCKED, str(directory)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


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
from tokmill.lock import locked
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
        holder.wait(timeout=60)
    with locked(tmp_path):
        pass


def test_a_lock_in_a_missing_directory_is_a_storage_error(tmp_path: Path):
    with pytest.raises(StorageError, match="no such file or directory"), locked(tmp_path / "no"):
        pass


# Parts: threads of one process are kept apart as processes are


@contextmanager
def held_by_a_thread(directory: Path, parts: list[int]):
    """Hold parts in another thread of this process."""
    ready, done = threading.Event(), threading.Event()

    def hold() -> None:
        with parts_locked(directory, parts):
            ready.set()
            done.wait(60)

    with ThreadPoolExecutor(1) as pool:
        holder = pool.submit(hold)
        assert ready.wait(60)
        try:
            yield
        finally:
            done.set()
            holder.result(60)


LOOK = """
import sys
from pathlib import Path
from tokmill.lock import locked_parts
print(*locked_parts(Path(sys.argv[1]), range(5)))
"""


def seen_by_a_process(directory: Path) -> list[int]:
    """Return those of five parts that another process sees as held."""
    command = [sys.executable, "-c", LOOK, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return [int(part) for part in done.stdout.split()]


@pytest.fixture
def impatient(monkeypatch):
    """Try a lock that is held again at once."""
    monkeypatch.setattr("tokmill.lock.time.sleep", lambda _: None)


def test_a_look_in_the_same_process_releases_no_part(tmp_path: Path):
    with held_by_a_thread(tmp_path, [0, 2]):
        assert locked_parts(tmp_path, range(5)) == [0, 2]
        assert seen_by_a_process(tmp_path) == [0, 2]
        assert locked_parts(tmp_path, [1, 2]) == [2]
    assert locked_parts(tmp_path, range(5)) == []


def test_two_threads_never_hold_the_same_part(tmp_path: Path, impatient):
    with held_by_a_thread(tmp_path, [0, 2]):
        with (
            pytest.raises(StateError, match=r"another task is writing part 2: wait for its end"),
            parts_locked(tmp_path, [1, 2]),
        ):
            pass
        assert locked_parts(tmp_path, range(5)) == [0, 2]  # part 1 was let go
        assert seen_by_a_process(tmp_path) == [0, 2]
    with parts_locked(tmp_path, [1, 2]):
        assert seen_by_a_process(tmp_path) == [1, 2]


def test_a_thread_that_ends_releases_its_own_parts_only(tmp_path: Path):
    with held_by_a_thread(tmp_path, [0]):
        with parts_locked(tmp_path, [1, 3]):
            assert seen_by_a_process(tmp_path) == [0, 1, 3]
        assert seen_by_a_process(tmp_path) == locked_parts(tmp_path, range(5)) == [0]


def test_one_part_of_two_directories_is_two_parts(tmp_path: Path, impatient):
    one, two, link = (tmp_path / name for name in ("one", "two", "link"))
    one.mkdir()
    two.mkdir()
    link.symlink_to(one)
    with parts_locked(one, [0]), parts_locked(two, [0]):
        assert locked_parts(link, [0]) == [0]
        with pytest.raises(StateError), parts_locked(link, [0]):
            pass
    assert locked_parts(two, [0]) == []


def test_an_instant_of_many_threads_gives_a_part_to_one(tmp_path: Path, impatient):
    together, tried = threading.Barrier(8), threading.Barrier(8)

    def take(_: int) -> bool:
        with ExitStack() as stack:
            together.wait(60)
            try:
                stack.enter_context(parts_locked(tmp_path, [4]))
            except StateError:
                tried.wait(60)
                return False
            tried.wait(60)
            return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(take, range(8))) == 1


FORKED = """
import os, sys
from pathlib import Path
from tokmill.lock import locked_parts, parts_locked
with parts_locked(Path(sys.argv[1]), [1]):
    if not os.fork():
        print(*locked_parts(Path(sys.argv[1]), range(5)), flush=True)
        os._exit(0)
    os.wait()
    print(*locked_parts(Path(sys.argv[1]), range(5)), flush=True)
    answer, question = os.pipe()
    if not os.fork():
        os.read(answer, 1)
        print(*locked_parts(Path(sys.argv[1]), range(5)), "free", flush=True)
        os._exit(0)
os.write(question, b"!")
os.wait()
"""


def test_a_forked_process_holds_none_of_the_parts_of_its_parent(tmp_path: Path):
    command = [sys.executable, "-c", FORKED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "1\n1\nfree\n"


def test_a_part_is_free_again_after_an_error_and_no_file_stays_open(tmp_path: Path, monkeypatch):
    opened, closed = [], []
    really_open, really_close = os.open, os.close
    monkeypatch.setattr(os, "open", lambda *args: opened.append(really_open(*args)) or opened[-1])
    monkeypatch.setattr(os, "close", lambda file: closed.append(file) or really_close(file))
    with ExitStack() as stack:
        stack.enter_context(pytest.raises(ValueError, match="mine"))
        stack.enter_context(parts_locked(tmp_path, [0]))
        assert locked_parts(tmp_path, [0]) == [0]
        raise ValueError("mine")
    assert len(opened) == 1
    assert closed == opened
    assert locked_parts(tmp_path, [0]) == []


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EINVAL])
def test_parts_need_a_file_system_with_locks(tmp_path: Path, monkeypatch, number):
    def no_locks(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "lockf", no_locks)
    with (
        pytest.raises(StorageError, match=r"its file system has no locks"),
        parts_locked(tmp_path, [0]),
    ):
        pass
    assert locked_parts(tmp_path, [0]) == []


def test_nobody_holds_a_part_where_there_is_no_file(tmp_path: Path):
    assert locked_parts(tmp_path, [0]) == []
    assert not (tmp_path / PART_LOCKS).exists()
