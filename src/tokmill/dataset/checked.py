"""The files of a dataset that a step reads, proven to be those of its manifest.

A step that writes sums of its own would make damaged bytes look right. So each file that it reads
is summed and compared with the manifest, and must not be written to from the begin of the step to
its end:

    files = CheckedFiles.of(directory, manifest.files)
    files.check(paths)  # before they are read; or files.copy, which sums what it copies
    ...
    files.finish()      # before the new manifest is written

A file that is linked keeps its old sum, so that damage in it stays visible. It is summed only if it
was written after the manifest (as in a copy of a dataset): one that was not cannot have changed
since, unless its time was set, or the disk is damaged.
"""

from __future__ import annotations

import os
from shlex import quote
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from tokmill.dataset.checksum import Digest
from tokmill.dataset.layout import MANIFEST
from tokmill.errors import StorageError, VerifyError
from tokmill.opening import open_regular
from tokmill.storage import read_errors
from tokmill.urls import shown_place, store_url
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from tokmill.dataset.checksum import FileEntry
    from tokmill.stores.connections import Entry

_CHUNK_BYTES = 256 << 10
"""Bytes that are read, summed and written at once: few enough for the cache of a core."""


class Stamp(NamedTuple):
    """What a file system says of a file: `written` differs when its bytes were written.

    `changed` differs then, too, and also when a link to it was made or its times were set.
    """

    written: tuple[int | str, ...]
    changed: int


class CheckedFiles:
    """The files of a dataset, or of an export, for one step that reads them.

    Attributes:
        directory: what `tokmill verify` checks; None for files that nobody has summed.
        entries: what the manifest says of each file; others are only watched.
        stamps: of each file that is watched, when the step began.
        summed: files whose sums were compared; a step adds those that its workers have compared.
    """

    def __init__(self, directory: Path | None, entries: Mapping[Path, FileEntry]) -> None:
        self.directory, self.entries = directory, entries
        self.stamps: dict[Path, Stamp] = {}
        self.summed: set[Path] = set()
        self._digests: dict[Path, Digest] = {}
        self._listed: dict[str, Entry] | None = None  # the objects of a store

    @classmethod
    def of(cls, directory: Path, entries: Iterable[FileEntry]) -> CheckedFiles:
        """Return the files of a manifest, or of the record of an export."""
        return cls(directory, {directory / entry.name: entry for entry in entries})

    def watch(self, paths: Iterable[Path]) -> None:
        """Keep the stamps of files from now on; nothing is read.

        Raises:
            VerifyError: a file is missing, or has another size than the manifest says.
            StorageError: it cannot be read.
        """
        for path in paths:
            if path not in self.stamps:
                self.stamps[path] = self._stamp(path)

    def check(self, paths: Iterable[Path]) -> None:
        """Check that files have the sums of the manifest; what was summed is not summed again.

        Raises:
            VerifyError: a file is damaged or missing.
            StorageError: it cannot be read.
        """
        for path in paths:
            self.watch([path])
            if path in self.entries and path not in self.summed:
                self._sum(path)

    def check_newer(self, paths: Iterable[Path]) -> None:
        """Check files that are linked: those that were written after the manifest, by their sums.

        Raises:
            TokmillError: see `check`.
        """
        paths = list(paths)
        self.watch(paths)
        self.check(self.newer(paths))

    def newer(self, paths: Iterable[Path]) -> list[Path]:
        """Return the files that were written after the manifest."""
        if self.directory is None or store_url(self.directory):  # objects are not linked
            return []
        manifest_ns = (self.directory / MANIFEST).stat().st_mtime_ns
        return [path for path in paths if path.stat().st_mtime_ns > manifest_ns]

    def copy(self, path: Path, start: int, stop: int, file: BinaryIO | None) -> None:
        """Append bytes start:stop of a file to another one; None: only sum them.

        What is copied from the beginning to the end, in one piece or in several, is summed on the
        way: `check` reads only what no copy has read.

        Raises:
            VerifyError: the file is shorter, or cannot be read.
            OSError: `file` cannot be written.
        """
        self.watch([path])
        chunks = _stored_chunks if store_url(path) else _chunks
        for chunk in chunks(path, start, stop):
            if file is not None:
                file.write(chunk)
            self.add(path, start, chunk)
            start += len(chunk)

    def add(self, path: Path, start: int, data: memoryview) -> None:
        """Sum bytes that were read of a file in another way, if they stand behind those before.

        `check` reads the rest.

        Raises:
            VerifyError: they are the last, and the file is damaged.
        """
        digest = self._digest(path)
        if start == digest.n_bytes:
            digest.update(data)
            if digest.n_bytes == self.entries[path].n_bytes:
                self._compare(path)

    def finish(self) -> None:
        """Check that no file was written to since it is watched.

        Where only a link was made, or times were set, a file that was summed is summed again.

        Raises:
            VerifyError: one was, or is damaged, or is gone.
        """
        self._listed = None
        for path, before in self.stamps.items():
            now = self._stamp(path)
            if now.written != before.written:
                where = shown_place(path)
                raise VerifyError(f"{where}: was written to while it was read{self._remedy}")
            if now != before and path in self.summed:
                self._digests.pop(path, None)
                self._sum(path)

    @property
    def _remedy(self) -> str:
        return (
            ""
            if self.directory is None
            else f"; see tokmill verify {quote(shown_place(self.directory))}"
        )

    def _digest(self, path: Path) -> Digest:
        """Return the digest of what was read of a file so far; see `copy`."""
        if path not in self._digests:
            self._digests[path] = Digest(self.entries[path].algorithm)
        return self._digests[path]

    def _sum(self, path: Path) -> None:
        """Read what was not summed of a file, and compare its sum."""
        self.copy(path, self._digest(path).n_bytes, self.entries[path].n_bytes, None)
        self._compare(path)

    def _compare(self, path: Path) -> None:
        entry, digest = self.entries[path], self._digest(path)
        if digest.checksum() != entry.checksum:
            raise VerifyError(
                f"{shown_place(path)}: "
                f"its {plural(entry.n_bytes, 'byte')} are not those of the manifest "
                f"({entry.algorithm}): the dataset is damaged{self._remedy}"
            )
        self.summed.add(path)

    def _stamp(self, path: Path) -> Stamp:
        """Return the stamp of a file that has the size of the manifest."""
        if self.directory is not None and store_url(self.directory):
            return self._stored_stamp(self.directory, path)
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            raise VerifyError(f"{path}: missing{self._remedy}") from None
        except OSError as error:
            raise StorageError(f"{path}: {str(error.strerror).lower()}") from None
        expected = self.entries[path].n_bytes if path in self.entries else status.st_size
        if status.st_size != expected:
            raise VerifyError(
                f"{path}: {plural(status.st_size, 'byte')}, the manifest says {expected:,}"
                f"{self._remedy}"
            )
        if not os.access(path, os.R_OK):
            raise StorageError(f"{path}: permission denied")
        written = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        return Stamp(written, status.st_ctime_ns)

    def _stored_stamp(self, directory: Path, path: Path) -> Stamp:
        """Return the stamp of an object; all of them are listed together."""
        if self._listed is None:
            from tokmill.stores.opening import open_store  # few datasets are in a store

            self._listed = open_store(store_url(directory)).entries()
        where = shown_place(path)
        found = self._listed.get(path.relative_to(directory).as_posix())
        if found is None:
            raise VerifyError(f"{where}: missing{self._remedy}")
        if path in self.entries and found.n_bytes != self.entries[path].n_bytes:
            raise VerifyError(
                f"{where}: {plural(found.n_bytes, 'byte')}, the manifest says "
                f"{self.entries[path].n_bytes:,}{self._remedy}"
            )
        return Stamp((found.stamp, found.n_bytes), 0)


def _chunks(path: Path, start: int, stop: int) -> Iterator[memoryview]:
    """Yield bytes of a file; a chunk is overwritten by the next one."""
    with read_errors(path):
        file: Any = open_regular(path, follow_links=True)
    buffer = memoryview(bytearray(min(_CHUNK_BYTES, max(0, stop - start))))
    with file:
        file.seek(start)
        while start < stop:
            with read_errors(path):
                n_read = file.readinto(buffer[: stop - start])
            if not n_read:
                raise VerifyError(f"{path}: ends at byte {start:,}, expected {stop:,}")
            yield buffer[:n_read]
            start += n_read


def _stored_chunks(path: Path, start: int, stop: int) -> Iterator[memoryview]:
    """Yield bytes of an object."""
    from tokmill.stores.objects import located  # few datasets are in a store

    store, name = located(store_url(path))
    with read_errors(path):
        for piece in store.pieces(name, start, stop):
            yield memoryview(piece)
