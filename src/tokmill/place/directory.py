"""A directory as a place: files are written in it under temporary names, and renamed; its lock.

A whole run holds the lock of its output directory alone, the tasks of an array share it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shlex
import time
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING

from tokmill.dataset.checksum import Digest
from tokmill.dataset.layout import FOLDERS, LOCK_NAME, PRIVATE_FILE
from tokmill.dataset.lock import HELD, holder_of, opened_lock
from tokmill.errors import StateError, StorageError, VerifyError
from tokmill.storage import (
    UNSUPPORTED,
    PendingFile,
    link,
    make_directory,
    make_folder,
    open_folder,
    open_inside,
    remove_file,
    remove_folder,
    rename_file,
    share_blocks,
    status_inside,
    storage_errors,
    write_chunks,
    write_file,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from tokmill.dataset.checksum import FileEntry
    from tokmill.dataset.place import Place

_CHUNK_BYTES = 1 << 20


class Directory:
    """A directory of this machine, or one that many machines mount; see `Place`."""

    def __init__(self, path: str) -> None:
        self.local = self.mapped = Path(path)
        self.where = path
        self._changed: set[str] = set()  # folders in which names are not yet durable

    def held(self, *, is_shared: bool = False) -> AbstractContextManager[None]:
        """Make the directory, and hold its lock."""
        make_directory(self.local)
        return locked(self.local, is_shared=is_shared)

    def holder(self) -> str:
        """Return who holds the lock."""
        return holder_of(self.local)

    def last_written(self) -> None:
        """Return None: see `holder`."""

    def make_folders(self) -> None:
        """Make the folders of a dataset."""
        for folder in FOLDERS:
            make_folder(self.local, folder)

    def entries(self, folders: Sequence[str] = FOLDERS) -> dict[str, int | None]:
        """Return the bytes of everything by relative name."""
        if not self.local.is_dir():
            return {}
        sizes: dict[str, int | None] = {}
        # A record is written after its files, and listed before them.
        for folder in (*folders, ""):
            sizes |= self._entries(folder, folders)
        return dict(sorted(sizes.items()))

    def _entries(self, folder: str, folders: Sequence[str]) -> dict[str, int | None]:
        """Return what stands in a real folder; nothing if a link or a file is in its place."""
        prefix = f"{folder}/" if folder else ""
        sizes: dict[str, int | None] = {}
        with storage_errors(self.local / folder):
            try:
                descriptor = open_folder(self.local, folder)
            except (FileNotFoundError, NotADirectoryError):
                return {}
            try:
                with os.scandir(descriptor) as listed:
                    for entry in listed:
                        name = prefix + entry.name
                        if entry.is_file(follow_symlinks=False):
                            sizes[name] = entry.stat(follow_symlinks=False).st_size
                        elif name not in folders or not entry.is_dir(follow_symlinks=False):
                            sizes[name] = None
            finally:
                os.close(descriptor)
        return sizes

    def stamp(self, name: str) -> str:
        """Return inode and time of a file."""
        with storage_errors(self.local / name):
            status = status_inside(self.local, name)
        return "" if status is None else f"{status.st_ino}-{status.st_mtime_ns}"

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        return b"".join(self.chunks(name))

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the content of a file; a link is not followed."""
        path = self.local / name
        with storage_errors(path):
            missing = status_inside(self.local, name) is None
        if missing:
            raise FileNotFoundError(path)
        with storage_errors(path), open_inside(self.local, name) as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk

    def create(self, name: str, chunks: Iterable[bytes]) -> bool:
        """Write a file under a temporary name, and link it to its own if that is free."""
        return write_chunks(self.local, name, chunks, first_wins=True)

    def write(self, name: str, data: bytes) -> None:
        """Write a file; it appears whole."""
        write_file(self.local, name, data, replace=True)

    def keep(self, entry: FileEntry, check: Callable[[], None]) -> None:
        """Leave the file where it was written."""

    def take(self, other: Place, entry: FileEntry, name: str) -> None:
        """Link a file of another directory, or let both share its blocks, or copy it.

        One of a store is copied.
        """
        if other.mapped is None:
            self._download(other, entry, name)
            return
        source = other.mapped / entry.name
        if other.differs(entry):
            raise VerifyError(
                f"{source}: missing or cut: see tokmill verify {shlex.quote(other.where)}"
            )
        self.remove(name)  # of an attempt that was stopped
        with storage_errors(self.local / name):
            if link(source, self.local, name):
                self._changed.add(name.rpartition("/")[0])
                return
            with (
                open_inside(other.mapped, entry.name) as original,
                PendingFile(self.local, name) as copy,
            ):
                if not share_blocks(original, copy.file):
                    while chunk := original.read(_CHUNK_BYTES):
                        copy.write(chunk)
                copy.commit()

    def _download(self, other: Place, entry: FileEntry, name: str) -> None:
        """Copy a file of a store, and compare its sum."""
        digest = Digest(entry.algorithm)
        with PendingFile(self.local, name) as copy:
            try:
                for chunk in other.chunks(entry.name):
                    digest.update(chunk)
                    copy.write(chunk)
            except FileNotFoundError:
                digest = Digest(entry.algorithm)
            if digest.entry(entry.name) != entry:
                raise VerifyError(
                    f"{other.where}/{entry.name}: missing or damaged: see tokmill verify "
                    f"{shlex.quote(other.where)}"
                )
            self.remove(name)  # of an attempt that was stopped
            copy.commit()

    def fetch(self, names: Iterable[str]) -> None:
        """Leave the files where they are."""

    def rescue(
        self, names: Mapping[str, str], processes: Collection[int] | None, check: Callable[[], None]
    ) -> None:
        """Rename the temporary files of these processes."""
        check()
        for left, name in left_by(self.local, self.entries(), names, processes):
            rename_file(self.local, left, name.rpartition("/")[2])

    def differs(self, entry: FileEntry) -> bool:
        """Return whether the size of a file is another one."""
        with storage_errors(self.local / entry.name):
            status = status_inside(self.local, entry.name)
        if status is None or not S_ISREG(status.st_mode):
            return True
        return status.st_size != entry.n_bytes

    def remove(self, name: str) -> None:
        """Remove a file, but neither a link nor a directory in its place."""
        remove_file(self.local, name)
        self._changed.add(name.rpartition("/")[0])

    def remove_folder(self, name: str) -> None:
        """Remove an empty folder."""
        remove_folder(self.local, name)

    def sync(self) -> None:
        """Sync the folders in which files were removed or linked."""
        for name in self._changed:
            path = self.local / name
            with storage_errors(path), contextlib.suppress(FileNotFoundError, NotADirectoryError):
                folder = open_folder(self.local, name)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
        self._changed.clear()

    def close(self) -> None:
        """Leave everything."""


def left_by(
    directory: Path,
    entries: Iterable[str],
    names: Mapping[str, str],
    processes: Collection[int] | None,
) -> Iterator[tuple[str, str]]:
    """Yield the temporary files of killed processes, each with the name that it is to have.

    `entries`: what stands in the directory, by relative name. See `Place.rescue`. Of the files
    of several processes for one name, the last that was written to counts.
    """
    found: list[tuple[float, str, str]] = []
    for entry in entries:
        folder, _, last = entry.rpartition("/")
        private = PRIVATE_FILE.fullmatch(last)
        if private is None:
            continue
        if processes is not None and int(private["process"]) not in processes:
            continue
        status = status_inside(directory, entry)
        final = names.get(f"{folder}/{private['name']}")
        if final and status is not None and S_ISREG(status.st_mode) and status.st_size:
            found.append((status.st_mtime, entry, final))
    for _, entry, final in sorted(found):
        yield entry, final


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
    kind = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
    with storage_errors(directory / LOCK_NAME):
        descriptor = opened_lock(directory, os.O_RDWR | os.O_CREAT)
    try:
        with storage_errors(directory):
            for n_left in reversed(range(_LOOKS)):
                try:
                    fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                    break
                except OSError as error:
                    if not n_left or error.errno not in HELD:
                        _explain(directory, error)
                        raise
                time.sleep(_PAUSE_S)
        yield
    finally:
        os.close(descriptor)


def _explain(directory: Path, error: OSError) -> None:
    """Raise what a refused lock means, if that is known."""
    if error.errno in (*HELD, errno.EACCES):
        raise StateError(
            f"{directory}: another run is writing here; wait for it or choose another --output"
        ) from None
    if error.errno in (*UNSUPPORTED, errno.EINVAL):
        reason = (error.strerror or str(error)).lower()
        raise StorageError(
            f"{directory}: its file system has no locks ({reason}), so two runs could write over "
            "each other: choose an --output on another disk"
        ) from None
