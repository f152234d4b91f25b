"""The lock of an output directory, and those of single parts.

A whole run holds the directory alone. The tasks of an array share it, and each holds its parts.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from tokmill.errors import StateError, StorageError
from tokmill.storage import UNSUPPORTED, remove_file, storage_errors
from tokmill.stores.urls import is_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LOCK_NAME = ".lock"
PART_LOCKS = ".part-locks"
"""A file whose byte number i is locked by who writes part i: a task may hold a thousand parts."""
LOCK_NAMES = (LOCK_NAME, PART_LOCKS)

_TRIES, _LOOKS = 20, 3
_PAUSE_S = 0.1
"""`locked_parts` and `is_locked` of another process may look at a lock for an instant."""


@contextlib.contextmanager
def locked(directory: Path, *, is_shared: bool = False) -> Iterator[None]:
    """Take the lock of an output directory; the system releases it when the process dies.

    `is_shared`: other processes may hold it too, if they share it.

    Raises:
        StateError: another process holds it.
        StorageError: the file system has no locks, or the directory cannot be written to.
    """
    descriptor = _open(directory / LOCK_NAME)
    try:
        with storage_errors(directory):
            _lock(descriptor, fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX, directory)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def parts_locked(directory: Path, parts: Iterable[int]) -> Iterator[None]:
    """Take the locks of parts, by number; other processes and threads may hold those of others.

    Raises:
        StateError: another process, or another thread of this one, holds one of them.
        StorageError: the file system has no locks, or the directory cannot be written to.
    """
    mine: list[int] = []
    file = _share_file(directory / PART_LOCKS)
    try:
        with storage_errors(directory):
            for part in parts:
                _lock_part(file, part, directory)
                mine.append(part)
        yield
    finally:
        _leave_file(file, mine)


def locked_parts(directory: Path, parts: Iterable[int]) -> list[int]:
    """Return those of some parts whose locks are held, here or elsewhere; none if nobody can tell.

    Takes a shared lock of each for an instant.
    """
    path = directory / PART_LOCKS
    with _PartFiles.guard:
        file = _open_file(path)
        if file is not None:
            return [part for part in parts if part in file.held or _is_held(file.descriptor, part)]
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return []
        try:
            return [part for part in parts if _is_held(descriptor, part)]
        finally:
            os.close(descriptor)


@dataclass(slots=True, eq=False)
class _PartFile:
    """The open file of part locks of one directory, and the parts that this process holds."""

    identity: tuple[str, int, int]
    descriptor: int
    n_users: int = 0
    held: set[int] = field(default_factory=set)


class _PartFiles:
    """The open files of part locks of this process, by identity: one of each, for all threads.

    A record lock belongs to a process, not to a thread, and ends when the process closes any
    descriptor of the file. Locks of open file descriptions do not, but a FUSE file system is not
    told when they end.
    """

    guard = threading.Lock()
    by_identity: ClassVar[dict[tuple[str, int, int], _PartFile]] = {}


def _forget_files() -> None:
    """Begin without locks in a forked process: they stayed with its parent."""
    _PartFiles.guard = threading.Lock()
    _PartFiles.by_identity.clear()


os.register_at_fork(after_in_child=_forget_files)


def _identity(path: Path, found: os.stat_result) -> tuple[str, int, int]:
    """Return what tells a file from others, also on mounts without inode numbers of their own."""
    return "" if found.st_ino else os.path.realpath(path), found.st_dev, found.st_ino


def _open_file(path: Path) -> _PartFile | None:
    """Return the file that this process has open; None if there is none. The guard is held."""
    try:
        return _PartFiles.by_identity.get(_identity(path, path.lstat()))
    except OSError:
        return None


def _share_file(path: Path) -> _PartFile:
    with _PartFiles.guard:
        file = _open_file(path)
        if file is None:
            descriptor = _open(path)
            file = _PartFile(_identity(path, os.fstat(descriptor)), descriptor)
            _PartFiles.by_identity[file.identity] = file
        file.n_users += 1
    return file


def _leave_file(file: _PartFile, parts: Iterable[int]) -> None:
    """Release the locks of parts; close the file if no other thread holds parts."""
    with _PartFiles.guard:
        file.n_users -= 1
        file.held.difference_update(parts)
        if file.n_users:
            for part in parts:
                with contextlib.suppress(OSError):  # the end of the last user releases it, too
                    fcntl.lockf(file.descriptor, fcntl.LOCK_UN, 1, part)
            return
        _PartFiles.by_identity.pop(file.identity, None)
        os.close(file.descriptor)


def _is_held(descriptor: int, part: int) -> bool:
    """Return whether another process holds a part; the guard is held, and this one does not."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, part)
        fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, part)
    except OSError as error:
        return error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)
    return False


def _lock(descriptor: int, kind: int, directory: Path) -> None:
    for n_left in reversed(range(_LOOKS)):
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return
        except OSError as error:
            if not n_left or error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN):
                _explain_lock(directory, error)
                raise
        time.sleep(_PAUSE_S)


def _lock_part(file: _PartFile, part: int, directory: Path) -> None:
    for n_left in reversed(range(_TRIES)):
        try:
            with _PartFiles.guard:
                if part not in file.held:
                    fcntl.lockf(file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, part)
                    file.held.add(part)
                    return
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
                _explain_lock(directory, error)
                raise
        if n_left:
            time.sleep(_PAUSE_S)
    raise StateError(
        f"{directory}: another task is writing part {part}: wait for its end, then start this "
        "task again"
    )


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with storage_errors(path):
        return os.open(path, flags, 0o666)


def remove_part_locks(place: str) -> None:
    """Remove the locks of parts from an output directory: every part is done. A store has none."""
    if not is_store(place):
        remove_file(Path(place) / PART_LOCKS)


def is_locked(directory: Path) -> bool:
    """Return whether a process holds the lock of an output directory; False where nobody can tell.

    Takes a shared lock for an instant.
    """
    try:
        descriptor = os.open(directory / LOCK_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EWOULDBLOCK, errno.EAGAIN)
    finally:
        os.close(descriptor)
    return False


def _explain_lock(directory: Path, error: OSError) -> None:
    """Raise what a refused lock means, if that is known."""
    if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
        raise StateError(
            f"{directory}: another run is writing here; wait for it or choose another --output"
        ) from None
    if error.errno in (*UNSUPPORTED, errno.EINVAL):
        reason = (error.strerror or str(error)).lower()
        raise StorageError(
            f"{directory}: its file system has no locks ({reason}), so two runs could write over "
            "each other: choose an --output on another disk"
        ) from None
