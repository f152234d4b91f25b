"""Atomic files: written under a temporary name, synced, renamed. Storage errors as one line.

The temporary name is unique to the attempt. A part's record is linked instead of renamed, so that
the first one wins. Committed files are read-only (0444).

A file is named by a directory and a relative name. The directory is the user's: it may be a link.
What stands in it may come from a stranger: each folder is opened in the one before, and no link is
followed, so nothing is made, read or removed anywhere else.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
from stat import S_ISREG
from typing import TYPE_CHECKING, BinaryIO, Self

from tokmill.errors import StateError, StorageError, VerifyError
from tokmill.opening import open_regular
from tokmill.urls import shown_place

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

SYNC_BYTES = 32 << 20
"""Bytes between syncs of a file; a single sync at the end would have to write all of it."""

CACHED_BYTES = 64 << 20
"""Synced bytes of a longer file leave the page cache: the input needs it more, and on a virtual
machine new pages of a large file cost 2 ms a MB."""

TEMPORARY_SUFFIX = ".tmp"

_COMPARED_BYTES = 1 << 20

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
        raise StorageError(f"{shown_place(path)}: {str(error.strerror).lower()}") from None
    except OSError as error:
        if error.errno == errno.EMFILE:
            raise StorageError(
                f"{path}: too many open files: raise the limit (ulimit -n)"
            ) from None
        said = str(error) if error.filename else error.strerror or str(error)
        raise VerifyError(f"{shown_place(path)}: {said}") from None
    except ValueError as error:
        raise VerifyError(f"{shown_place(path)}: {error}") from None


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def open_folder(directory: Path, folders: str = "") -> int:
    """Return the descriptor of a folder below a directory; no link below it is followed.

    Raises:
        OSError: a folder is missing, or a link or a file stands in its place.
    """
    descriptor = os.open(directory, _FOLDER)
    for name in filter(None, folders.split("/")):
        above = descriptor
        try:
            descriptor = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=above)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                text = f"expected the folder {name}, a link or a file is in its place"
                raise NotADirectoryError(errno.ENOTDIR, text) from None
            raise
        finally:
            os.close(above)
    return descriptor


@contextlib.contextmanager
def folder_of(directory: Path, name: str) -> Iterator[tuple[int, str]]:
    """Yield the descriptor of the folder in which a file stands, and the name of the file there.

    `name`: relative to `directory`. Raises `OSError` as `open_folder` does.
    """
    folders, _, last = name.rpartition("/")
    descriptor = open_folder(directory, folders)
    try:
        yield descriptor, last
    finally:
        os.close(descriptor)


def open_inside(directory: Path, name: str) -> BinaryIO:
    """Open a regular file of a directory for reading; raises `OSError` for anything else."""
    with folder_of(directory, name) as (folder, last):
        return open_regular(last, folder=folder)


def status_inside(directory: Path, name: str) -> os.stat_result | None:
    """Return the status of what stands under a name in a directory, a link itself; None: nothing.

    Raises:
        OSError: it cannot be looked at.
    """
    try:
        with folder_of(directory, name) as (folder, last):
            return os.stat(last, dir_fd=folder, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None


class PendingFile:
    """A file under a temporary name in its final folder, until it is committed or discarded.

    `name`: relative to `directory`. As a context manager the file is discarded at the end, if it is
    not committed.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self.path = directory / name
        folders, _, self._last = name.rpartition("/")
        attempt = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._temporary = f".{self._last}.{attempt}{TEMPORARY_SUFFIX}"
        self._n_bytes = self._n_synced = 0
        self._is_gone = False
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with storage_errors(self.path), contextlib.ExitStack() as stack:
            self._folder = open_folder(directory, folders)
            stack.callback(os.close, self._folder)
            descriptor = os.open(self._temporary, flags, 0o666, dir_fd=self._folder)
            self.file: BinaryIO = os.fdopen(descriptor, "r+b", buffering=0)
            self._end = stack.pop_all()

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

    def commit(
        self,
        *,
        first_wins: bool = False,
        replace: bool = False,
        is_durable: bool = True,
        name: str = "",
    ) -> bool:
        """Make the file appear under its name: complete, durable and read-only.

        Args:
            first_wins: an existing file stays; whether it has the same bytes is returned.
            replace: an existing file is replaced.
            is_durable: it is there after a crash of the machine, too.
            name: another name in the same folder.

        Raises:
            StateError: neither is set, and an existing file has other bytes.
        """
        self._last = name or self._last
        with storage_errors(self.path):
            os.fchmod(self.file.fileno(), 0o444)
            if is_durable:
                os.fsync(self.file.fileno())
            self.file.close()
            is_same = True
            if first_wins:
                is_same = self._link()
            else:
                self._rename(replace=replace)
            if is_durable:
                os.fsync(self._folder)
        self._end.close()
        return is_same

    def _link(self) -> bool:
        """Link the file to its name; return whether what stands there now has the same bytes."""
        here = self._folder
        try:
            os.link(self._temporary, self._last, src_dir_fd=here, dst_dir_fd=here)
        except FileExistsError:
            return self._is_same()
        finally:
            os.unlink(self._temporary, dir_fd=self._folder)
            self._is_gone = True
        return True

    def _rename(self, *, replace: bool) -> None:
        """Rename the file to its name; raises `StateError` if another one stands there."""
        if not replace and self._is_taken() and not self._is_same():
            raise StateError(
                f"{self.path}: this run did not write that file: move it away and run the "
                "same command again"
            )
        os.replace(self._temporary, self._last, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._is_gone = True

    def _is_taken(self) -> bool:
        try:
            os.stat(self._last, dir_fd=self._folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def _is_same(self) -> bool:
        """Return whether a file, no link, stands under the name, with the same bytes."""
        try:
            there = open_regular(self._last, folder=self._folder)
        except OSError:
            return False
        with there, open_regular(self._temporary, folder=self._folder) as ours:
            if os.fstat(there.fileno()).st_size != os.fstat(ours.fileno()).st_size:
                return False
            while chunk := ours.read(_COMPARED_BYTES):
                if there.read(_COMPARED_BYTES) != chunk:
                    return False
            return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        if not self._is_gone:
            self._is_gone = True
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._temporary, dir_fd=self._folder)
        self._end.close()

    def discard(self) -> None:
        """Close the file, and remove it if it is not committed."""
        self.__exit__()


def write_file(
    directory: Path, name: str, data: bytes, *, first_wins: bool = False, replace: bool = False
) -> bool:
    """Write a small file atomically; options and result are those of `PendingFile.commit`."""
    return write_chunks(directory, name, (data,), first_wins=first_wins, replace=replace)


def write_chunks(
    directory: Path,
    name: str,
    chunks: Iterable[bytes],
    *,
    first_wins: bool = False,
    replace: bool = False,
) -> bool:
    """Write a file from chunks, of which one is in memory; see `write_file`."""
    with PendingFile(directory, name) as pending:
        for chunk in chunks:
            pending.write(chunk)
        return pending.commit(first_wins=first_wins, replace=replace)


def sync_directory(path: Path) -> None:
    """Make durable which names a directory holds."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_file(directory: Path, name: str) -> None:
    """Remove a regular file, if one is there: no link, no directory; raises `StorageError`."""
    with (
        storage_errors(directory / name),
        contextlib.suppress(FileNotFoundError, NotADirectoryError),
        folder_of(directory, name) as (folder, last),
    ):
        if S_ISREG(os.stat(last, dir_fd=folder, follow_symlinks=False).st_mode):
            os.unlink(last, dir_fd=folder)


def rename_file(directory: Path, name: str, new_name: str) -> None:
    """Rename a regular file inside its folder, over another one; raises `StorageError`."""
    with storage_errors(directory / name), folder_of(directory, name) as (folder, last):
        os.chmod(last, 0o444, dir_fd=folder)
        os.replace(last, new_name, src_dir_fd=folder, dst_dir_fd=folder)


def remove_folder(directory: Path, name: str) -> None:
    """Remove an empty folder of a directory, if one is there; raises `StorageError`."""
    with (
        storage_errors(directory / name),
        contextlib.suppress(FileNotFoundError, NotADirectoryError),
        folder_of(directory, name) as (folder, last),
    ):
        os.rmdir(last, dir_fd=folder)


def make_directory(path: Path) -> None:
    """Create a directory and its parents, durably.

    Raises:
        StorageError: a file is in the way, or a directory cannot be made.
    """
    with storage_errors(path):
        path = path.absolute()
        missing = [one for one in (path, *path.parents) if not one.exists()]
        try:
            path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise StorageError(f"{path}: expected a directory, a file is in its place") from None
        for folder in missing:
            with contextlib.suppress(OSError):  # it may be written to, but not read or synced
                sync_directory(folder.parent)


def make_folder(directory: Path, name: str, mode: int = 0o777) -> None:
    """Create a folder in a directory; raises `StorageError` if a link or a file is in the way."""
    with storage_errors(directory / name), folder_of(directory, name) as (folder, last):
        with contextlib.suppress(FileExistsError):
            os.mkdir(last, mode, dir_fd=folder)
        os.close(open_folder(directory, name))


def share_blocks(source: BinaryIO, target: BinaryIO) -> bool:
    """Let an empty file share the blocks of another; return whether the file system can."""
    try:
        fcntl.ioctl(target.fileno(), _FICLONE, source.fileno())
    except OSError:
        return False
    return True


_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES)


def link(source: Path, directory: Path, name: str) -> bool:
    """Make a hard link to a file; return whether the file systems can. Raises `OSError`."""
    try:
        with folder_of(directory, name) as (folder, last):
            # A link to a link would break when moved.
            os.link(source.resolve(), last, dst_dir_fd=folder, follow_symlinks=False)
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
