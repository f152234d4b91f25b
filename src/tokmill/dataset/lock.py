"""The lock of an output directory: who holds it."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from stat import S_ISREG
from typing import TYPE_CHECKING

from tokmill.dataset.layout import LOCK_NAME

if TYPE_CHECKING:
    from pathlib import Path

HELD = (errno.EWOULDBLOCK, errno.EAGAIN)
"""What a lock that another process holds answers."""


RUN, TASKS = "a run", "tasks of a run"
"""Who holds a lock: a whole run alone, or the tasks of an array, which share it."""

_LOOKS, _PAUSE_S = 3, 0.02
"""Whoever looks takes the lock for an instant, so that it is tried again."""


def holder_of(directory: Path) -> str:
    """Return who holds the lock of an output directory; '' if nobody, or where nobody can tell."""
    holder = ""
    for _ in range(_LOOKS):
        if is_locked(directory):
            holder = RUN
        elif _is_refused(directory, fcntl.LOCK_EX):
            holder = TASKS
        else:
            return ""
        time.sleep(_PAUSE_S)
    return holder


def is_locked(directory: Path) -> bool:
    """Return whether a process holds the lock of an output directory alone.

    False where nobody can tell.
    """
    return _is_refused(directory, fcntl.LOCK_SH)


def _is_refused(directory: Path, kind: int) -> bool:
    """Return whether other processes refuse a lock, which is taken for an instant."""
    try:
        descriptor = opened_lock(directory, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
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
