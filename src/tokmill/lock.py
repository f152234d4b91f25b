"""The lock of an output directory."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from typing import TYPE_CHECKING

from tokmill.errors import StateError, StorageError
from tokmill.storage import UNSUPPORTED, storage_errors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCK_NAME = ".lock"


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Take the lock of an output directory; the system releases it when the process dies.

    Raises:
        StateError: another process holds it.
        StorageError: the file system has no locks, or the directory cannot be written to.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with storage_errors(directory / LOCK_NAME):
        descriptor = os.open(directory / LOCK_NAME, flags, 0o666)
    try:
        with storage_errors(directory):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                _explain_lock(directory, error)
                raise
        yield
    finally:
        os.close(descriptor)


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
