"""The lock of an output directory: whether a whole run holds it."""

from __future__ import annotations

import errno
import fcntl
import os
from stat import S_ISREG
from typing import TYPE_CHECKING

from tokmill.dataset.layout import LOCK_NAME

if TYPE_CHECKING:
    from pathlib import Path

HELD = (errno.EWOULDBLOCK, errno.EAGAIN)
"""What a lock that another process holds answers."""


def is_locked(directory: Path) -> bool:
    """Return whether a process holds the lock of an output directory; False where nobody can tell.

    Takes a shared lock for an instant.
    """
    try:
        descriptor = opened_lock(directory, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in HELD
    finally:
        os.close(descriptor)
    return False


def opened_lock(directory: Path, flags: int) -> int:
    """Return the descriptor of the lock; raises `OSError` if it is no regular file."""
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(directory / LOCK_NAME, flags, 0o666)
    if not S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file")
    return descriptor
