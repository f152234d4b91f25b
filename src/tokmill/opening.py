"""Open a file that stands somewhere already: a regular file, or an error at once, never a wait.

A pipe without a writer would never open, a device never end.
"""

from __future__ import annotations

import errno
import os
from stat import S_ISDIR, S_ISREG
from typing import TYPE_CHECKING, BinaryIO

from tokmill.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

_NOT_REGULAR = "not a regular file"


def open_regular(
    path: Path | str, *, follow_links: bool = False, folder: int | None = None
) -> BinaryIO:
    """Open a regular file for reading.

    `follow_links`: a link to a file is opened as that file. `folder`: the descriptor of the
    directory in which `path` is a name.

    Raises:
        OSError: it is a pipe, a socket, a device, a directory or a link, or cannot be opened.
    """
    links = 0 if follow_links else os.O_NOFOLLOW
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | links
    try:
        descriptor = os.open(path, flags, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise OSError(errno.EINVAL, _NOT_REGULAR) from None
        if error.errno == errno.ELOOP and not follow_links:
            raise OSError(errno.ELOOP, "a link, which is not followed") from None
        raise
    mode = os.fstat(descriptor).st_mode
    if not S_ISREG(mode):
        os.close(descriptor)
        if S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        raise OSError(errno.EINVAL, _NOT_REGULAR)
    return os.fdopen(descriptor, "rb")


def open_named(path: Path) -> BinaryIO:
    """Open a file that the user names, or that stands beside one; links are followed.

    Raises:
        UsageError: it is a pipe, a socket or a device.
        OSError: it cannot be opened.
    """
    try:
        return open_regular(path, follow_links=True)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise UsageError(
            f"{path}: expected a regular file, found a pipe, a socket or a device"
        ) from None


def read_named(path: Path, most_bytes: int = -1) -> bytes:
    """Return the bytes of such a file, at most `most_bytes` of them; raises as `open_named`."""
    with open_named(path) as file:
        return file.read(most_bytes)


LFS_POINTER = b"version https://git-lfs.github.com/spec/"
"""The first bytes of what Git leaves in place of a large file."""
LFS_ADVICE = "a pointer of Git LFS, not the file itself", "get the file with git lfs pull"


def begins_with(path: Path, beginning: bytes) -> bool:
    """Return whether a path is a readable file, not a link, that begins with these bytes."""
    try:
        with open_regular(path) as file:
            return file.read(len(beginning)) == beginning
    except OSError:
        return False
