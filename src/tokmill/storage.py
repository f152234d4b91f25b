"""Atomic files: written under a temporary name, synced, renamed. Storage errors as one line.

The temporary name is unique to the attempt. A part's record is linked instead of renamed, so that
the first one wins. Committed files are read-only (0444).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import filecmp
import os
import secrets
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, BinaryIO, Self

from tokmill.errors import StateError, StorageError, VerifyError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SYNC_BYTES = 32 << 20
"""Bytes between syncs of a file; a single sync at the end would have to write all of it."""

CACHED_BYTES = 64 << 20
"""Synced bytes of a longer file leave the page cache: the input needs it more, and on a virtual
machine new pages of a large file cost 2 ms a MB."""

TEMPORARY_SUFFIX = ".tmp"

_FICLONE = 0x40049409
"""ioctl of Linux that lets a new file share the blocks of another (Btrfs, XFS)."""

UNSUPPORTED = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOLCK)
"""Error numbers of operations that a file system does not support."""

KEPT = "parts that are done are kept: make room and run the same command again to continue"
"""What a run that has no space left is told."""

_ADVICE = dict.fromkeys((errno.ENOSPC, errno.EDQUOT), f"; {KEPT}") | {
    errno.EFBIG: f" for this process (ulimit -f) or file system; {KEPT}",
    errno.EROFS: ": choose a place that can be written to",
}


@contextlib.contextmanager
def storage_errors(path: Path | str) -> Iterator[None]:
    """Turn an `OSError` on `path` into a line with advice.

    Raises:
        StorageError: in place of any `OSError` raised inside.
    """
    try:
        yield
    except OSError as error:
        said = (error.strerror or str(error)).lower()
        raise StorageError(f"{path}: {said}{_ADVICE.get(error.errno or 0, '')}") from error


@contextlib.contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Turn errors of reading a dataset's file into one line.

    Raises:
        StorageError: in place of a `PermissionError`, and where no more files can be open.
        VerifyError: in place of another `OSError`, or of a `ValueError` about its bytes.
    """
    try:
        yield
    except PermissionError as error:
        raise StorageError(f"{path}: {str(error.strerror).lower()}") from None
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.EMFILE:
            raise StorageError(
                f"{path}: too many open files: arrays that are kept keep theirs open; copy them, "
                "or raise the limit (ulimit -n)"
            ) from None
        raise VerifyError(f"{path}: {error}") from None


class PendingFile:
    """A file under a temporary name in its final directory, until it is committed or discarded.

    As a context manager it is discarded at the end, if it is not committed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        attempt = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._temporary = path.parent / f".{path.name}.{attempt}{TEMPORARY_SUFFIX}"
        self._n_bytes = self._n_synced = 0
        self._is_gone = False
        with storage_errors(path):
            self.file: BinaryIO = self._temporary.open("x+b", buffering=0)

    def write(self, data: bytes | memoryview) -> None:
        """Append all of `data`; raises `StorageError`."""
        view = memoryview(data).cast("B")
        self._n_bytes += len(view)
        with storage_errors(self.path):
            while len(view):
                view = view[self.file.write(view) :]
            if self._n_bytes - self._n_synced >= SYNC_BYTES:
                self._sync()

    def _sync(self) -> None:
        descriptor = self.file.fileno()
        self._n_synced = self._n_bytes
        if hasattr(os, "fdatasync"):
            os.fdatasync(descriptor)
        else:
            os.fsync(descriptor)
        if self._n_bytes > CACHED_BYTES and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def commit(self, *, first_wins: bool = False, replace: bool = False) -> bool:
        """Make the file appear under its name: complete, durable and read-only.

        Args:
            first_wins: an existing file stays; whether it has the same bytes is returned.
            replace: an existing file is replaced.

        Raises:
            StateError: neither is set, and an existing file has other bytes.
        """
        with storage_errors(self.path):
            os.fchmod(self.file.fileno(), 0o444)
            os.fsync(self.file.fileno())
            self.file.close()
            if first_wins:
                try:
                    self.path.hardlink_to(self._temporary)
                except FileExistsError:
                    return _is_same(self.path, self._temporary)
                finally:
                    self._temporary.unlink()
                    self._is_gone = True
            else:
                is_there = not replace and os.path.lexists(self.path)
                if is_there and not _is_same(self.path, self._temporary):
                    raise StateError(
                        f"{self.path}: this run did not write that file: move it away and run the "
                        "same command again"
                    )
                self._temporary.replace(self.path)
                self._is_gone = True
            sync_directory(self.path.parent)
            return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        if not self._is_gone:
            self._temporary.unlink(missing_ok=True)

    def discard(self) -> None:
        """Close the file, and remove it if it is not committed."""
        self.__exit__()


def _is_same(path: Path, temporary: Path) -> bool:
    """Return whether a path is a file, no link, with the bytes of another."""
    is_file = path.is_file() and not path.is_symlink()
    return is_file and filecmp.cmp(path, temporary, shallow=False)


def write_file(path: Path, data: bytes, *, first_wins: bool = False, replace: bool = False) -> bool:
    """Write a small file atomically; options and result are those of `PendingFile.commit`."""
    return write_chunks(path, (data,), first_wins=first_wins, replace=replace)


def write_chunks(
    path: Path, chunks: Iterable[bytes], *, first_wins: bool = False, replace: bool = False
) -> bool:
    """Write a file from chunks, of which one is in memory; see `write_file`."""
    with PendingFile(path) as pending:
        for chunk in chunks:
            pending.write(chunk)
        return pending.commit(first_wins=first_wins, replace=replace)


def sync_directory(path: Path) -> None:
    """Make renames in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_regular(path: Path, *, follow_links: bool = False) -> BinaryIO:
    """Open a regular file for reading; raises `OSError` for a pipe, a directory or a link.

    With `follow_links`, a link to a file is opened as that file.
    """
    links = 0 if follow_links else os.O_NOFOLLOW
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | links)
    if not S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file")
    return os.fdopen(descriptor, "rb")


def begins_with(path: Path, beginning: bytes) -> bool:
    """Return whether a path is a readable file, not a link, that begins with these bytes."""
    try:
        with open_regular(path) as file:
            return file.read(len(beginning)) == beginning
    except OSError:
        return False


def remove_file(path: Path) -> None:
    """Remove a file, if it is there; raises `StorageError`."""
    with storage_errors(path):
        path.unlink(missing_ok=True)


def make_directory(path: Path) -> None:
    """Create a directory and its parents; raises `StorageError` where a file is in the way."""
    with storage_errors(path):
        try:
            path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise StorageError(f"{path}: expected a directory, a file is in its place") from None


def share_blocks(source: BinaryIO, target: BinaryIO) -> bool:
    """Let an empty file share the blocks of another; return whether the file system can."""
    try:
        fcntl.ioctl(target.fileno(), _FICLONE, source.fileno())
    except OSError:
        return False
    return True


_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES)


def link(source: Path, path: Path) -> bool:
    """Make a hard link to a file; return whether the file systems can. Raises `OSError`."""
    try:
        path.hardlink_to(source.resolve())  # a link to a link would break when moved
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        return False
    return True


def free_bytes(path: Path) -> int:
    """Return the bytes that this user can still write on the file system of `path`."""
    while not path.exists():
        path = path.parent
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize
