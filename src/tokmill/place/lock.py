"""The lock of an output directory: a whole run holds it alone, the tasks of an array share it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from typing import TYPE_CHECKING

from tokmill.dataset.layout import LOCK_NAME
from tokmill.errors import StateError, StorageError
from tokmill.storage import UNSUPPORTED, storage_errors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HELD = (errno.EWOULDBLOCK, errno.EAGAIN)
"""What a lock that another process holds answers."""

_LOOKS = 3
_PAUSE_S = 0.1
"""`is_locked` of another process may look at a lock for an instant."""


@contextlib.contextmanager
def locked(directory: Path, *, is_shared: bool = False) -> Iterator[None]:
    """Take the lock of an output directory; the system releases it when the process dies.

    `is_shared`: other processes may hold it too, if they share it.

    Raises:
        StateError: another process holds it.
        StorageError: the file system has no locks, or the directory cannot be written to.
    """
    path, kind = directory / LOCK_NAME, fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
    with storage_errors(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with storage_errors(directory):
            for n_left in reversed(range(_LOOKS)):
                try:
                    fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                    break
                except OSError as error:
                    if not n_left or error.errno not in _HELD:
                        _explain(directory, error)
                        raise
                time.sleep(_PAUSE_S)
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
        return error.errno in _HELD
    finally:
        os.close(descriptor)
    return False


def _explain(directory: Path, error: OSError) -> None:
    """Raise what a refused lock means, if that is known."""
    if error.errno in (*_HELD, errno.EACCES):
        raise StateError(
            f"{directory}: another run is writing here; wait for it or choose another --output"
        ) from None
    if error.errno in (*UNSUPPORTED, errno.EINVAL):
        reason = (error.strerror or str(error)).lower()
        raise StorageError(
            f"{directory}: its file system has no locks ({reason}), so two runs could write over "
            "each other: choose an --output on another disk"
        ) from None
