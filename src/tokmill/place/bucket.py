"""A prefix in an object store as a place.

The store creates a small object only if there is none, and makes a large one appear when its last
request is done. A run that stood still while another one took its place is stopped by the check
before that request.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
import time
import weakref
from pathlib import Path
from shutil import rmtree
from stat import S_ISDIR
from typing import TYPE_CHECKING, TypeVar

from tokmill.dataset.checksum import digest_of
from tokmill.dataset.layout import FOLDERS, LOCK_NAME
from tokmill.dataset.lock import is_locked
from tokmill.errors import StorageError, UsageError, VerifyError
from tokmill.place.directory import left_by, locked
from tokmill.settings.schema import BLAKE3
from tokmill.storage import make_directory, storage_errors
from tokmill.stores.connections import OBSTORE, StoreObjects, request
from tokmill.urls import shown
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime

    from tokmill.dataset.checksum import FileEntry
    from tokmill.dataset.place import Place

T = TypeVar("T")

_CHUNK_BYTES = 8 << 20
"""Bytes of one request; S3 allows 10,000 of them for an object."""

_CONCURRENT = 4
_TRIES = 3
_SUM = "tokmillsum"
"""The attribute of an object with the checksum of its content; Azure takes letters alone."""

_LOCAL = "tokmill-upload-"
_LEFT_S = 5.0
"""Between making a temporary directory and locking it, at most."""


class Bucket:
    """A prefix in an object store; see `Place`."""

    mapped = None

    def __init__(self, url: str) -> None:
        scheme, _, rest = url.partition("://")
        if scheme.lower() not in OBSTORE:
            raise UsageError(
                f"{shown(url)}: expected a directory, or a place in an object store that datasets "
                "can be written to, such as s3://bucket/name, gs:// or az://"
            )
        inside = rest.strip("/").partition("/")[2]
        if not inside or {"", ".", ".."} & set(inside.split("/")):
            raise UsageError(f"{shown(url)}: expected a bucket and a name, as in s3://bucket/name")
        self._objects = StoreObjects(url)
        self._store = self._objects.store
        self.where = self._objects.url
        self._local: Path | None = None
        self._stack = contextlib.ExitStack()

    @property
    def local(self) -> Path:
        """Return a temporary directory of this process; it is made when it is asked for first."""
        if self._local is None:
            _remove_left()
            with storage_errors(tempfile.gettempdir()):
                self._local = Path(tempfile.mkdtemp(prefix=f"{_LOCAL}{os.getpid()}-"))
            self._stack.callback(rmtree, self._local, ignore_errors=True)
            self._stack.enter_context(locked(self._local))
            for folder in FOLDERS:
                make_directory(self._local / folder)
            weakref.finalize(self, self._stack.close)
        return self._local

    def held(self, *, is_shared: bool = False) -> AbstractContextManager[None]:
        """Keep nobody out: of two runs with one plan both write the same bytes."""
        return contextlib.nullcontext()

    def holder(self) -> str:
        """Return '': a store has no locks; see `last_written`."""
        return ""

    def last_written(self) -> datetime | None:
        """Return the time of the newest object, by the clock of the store."""
        return self._objects.last_written()

    def make_folders(self) -> None:
        """Make nothing: `local` has the folders."""

    def entries(self, folders: Sequence[str] = FOLDERS) -> dict[str, int | None]:
        """Return the bytes of every object by relative name."""
        return {name: entry.n_bytes for name, entry in self._objects.entries().items()}

    def stamp(self, name: str) -> str:
        """Return the etag of an object."""
        entry = self._objects.entry(name)
        return "" if entry is None else entry.stamp

    def read(self, name: str) -> bytes:
        """Return the content of a small object."""
        return self._objects.read(name)

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the content of an object; each piece is asked for again until it comes."""
        entry = self._objects.entry(name)
        if entry is None:
            raise FileNotFoundError(name)
        for start in range(0, entry.n_bytes, _CHUNK_BYTES):
            stop = min(start + _CHUNK_BYTES, entry.n_bytes)
            yield self._objects.read_range(name, start, stop)

    def create(self, name: str, chunks: Iterable[bytes]) -> bool:
        """Write an object on the condition that there is none, in one request.

        A request whose answer was lost is made again, and then finds its own object.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError

        data = b"".join(chunks)

        def put() -> bool:
            try:
                obstore.put(self._store, name, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
            return True

        for _ in range(_TRIES):
            if self._written(name, put):
                return True
            with contextlib.suppress(FileNotFoundError):  # S3 refuses both of two at once
                return self.read(name) == data
        raise StorageError(f"{self.where}/{name}: the store neither has nor takes it")

    def write(self, name: str, data: bytes) -> None:
        """Write an object in one request."""
        import obstore

        self._written(name, lambda: obstore.put(self._store, name, data, use_multipart=False))

    def _written(self, name: str, action: Callable[[], T]) -> T:
        try:
            return request(action, f"{self.where}/{name}")
        except FileNotFoundError:
            raise StorageError(f"{self.where}/{name}: no such bucket: make it first") from None

    def keep(self, entry: FileEntry, check: Callable[[], None]) -> None:
        """Upload a file, compare what the store then has, and remove the file.

        One that the store has already, by size and sum, is not sent again.
        """
        path, where = self.local / entry.name, f"{self.where}/{entry.name}"
        for is_last in (False, True):
            if not self.differs(entry):
                break
            try:
                self._written(entry.name, lambda: self._upload(path, entry, check))
            except StorageError:
                # The answer to the last request of many may have been lost: is the object there?
                if is_last and self.differs(entry):
                    raise
        else:
            if self.differs(entry):
                stored, now = self._objects.entry(entry.name), "it is not there"
                if stored is not None:
                    now = f"found {plural(stored.n_bytes, 'byte')}, or another sum in its metadata"
                raise StorageError(
                    f"{where}: expected {plural(entry.n_bytes, 'byte')} with the sum "
                    f"{_sum_of(entry)} after writing it, {now}: run the same command again to "
                    "make it again; the store must keep the metadata of objects"
                )
        with storage_errors(path):
            path.unlink()

    def _upload(self, path: Path, entry: FileEntry, check: Callable[[], None]) -> None:
        """Send a file in pieces; `check` may stop it before the object appears."""
        import obstore

        writer = obstore.open_writer(
            self._store,
            entry.name,
            attributes={_SUM: _sum_of(entry)},
            buffer_size=max(_CHUNK_BYTES, entry.n_bytes // 9_000),
            max_concurrency=_CONCURRENT,
        )
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                writer.write(chunk)
        check()
        writer.close()  # only now does the object appear

    def take(self, other: Place, entry: FileEntry, name: str) -> None:
        """Let the store copy an object of the same bucket, with the sum beside it."""
        import obstore

        if not isinstance(other, Bucket) or other.root != self.root:
            raise UsageError(f"{other.where}: expected a place in {self.root}, as {self.where} is")
        if other.differs(entry):
            raise VerifyError(
                f"{other.where}/{entry.name}: missing or cut: see tokmill verify "
                f"{shlex.quote(other.where)}"
            )
        source, target = (
            f"{place.where.removeprefix(self.root)}/{named}"
            for place, named in ((other, entry.name), (self, name))
        )
        bucket = StoreObjects(self.root).store
        request(lambda: obstore.copy(bucket, source, target), f"{self.where}/{name}")

    @property
    def root(self) -> str:
        """Return the URL of the bucket."""
        scheme, _, rest = self.where.partition("://")
        return f"{scheme}://{rest.partition('/')[0]}/"

    def fetch(self, names: Iterable[str]) -> None:
        """Download objects."""
        for name in names:
            path = self.local / name
            if not path.exists():
                with storage_errors(path), path.open("wb") as file:
                    for chunk in self.chunks(name):
                        file.write(chunk)

    def rescue(
        self, names: Mapping[str, str], processes: Collection[int] | None, check: Callable[[], None]
    ) -> None:
        """Upload what stands in the temporary directories of these processes."""
        for directory in _directories_of(processes or ()):
            with storage_errors(directory):
                entries = [str(path.relative_to(directory)) for path in directory.glob("*/.*")]
                for left, name in left_by(directory, entries, names, processes):
                    kept = (directory / left).replace(self.local / name)
                    with kept.open("rb") as file:
                        entry = digest_of(file, BLAKE3).entry(name)
                    self.keep(entry, check)

    def differs(self, entry: FileEntry) -> bool:
        """Return whether an object has another size or sum."""
        import obstore

        try:
            answer = request(
                lambda: obstore.get(self._store, entry.name, options={"head": True}),
                f"{self.where}/{entry.name}",
            )
        except FileNotFoundError:
            return True
        is_same = answer.meta["size"] == entry.n_bytes
        return not is_same or answer.attributes.get(_SUM) != _sum_of(entry)

    def remove(self, name: str) -> None:
        """Remove an object."""
        import obstore

        with contextlib.suppress(FileNotFoundError):
            request(lambda: obstore.delete(self._store, name), f"{self.where}/{name}")

    def remove_folder(self, name: str) -> None:
        """Remove nothing: a store has no folders."""

    def sync(self) -> None:
        """Do nothing: an object that was removed stays so."""

    def close(self) -> None:
        """Remove the temporary directory, and those of workers that were killed meanwhile."""
        self._stack.close()
        self._local = None
        _remove_left()


def _sum_of(entry: FileEntry) -> str:
    return f"{entry.algorithm}-{entry.checksum}"


def _directories_of(processes: Collection[int]) -> Iterator[Path]:
    """Yield the temporary directories of processes of this user that are there."""
    for process in processes:
        for path in Path(tempfile.gettempdir()).glob(f"{_LOCAL}{process}-*"):
            if _is_mine(path):
                yield path


def _is_mine(path: Path) -> bool:
    """Return whether a path is a directory of this user; a link is none."""
    status = path.lstat()
    return S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


def _remove_left() -> None:
    """Remove the temporary directories of processes of this user that were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_LOCAL}*"):
        with contextlib.suppress(OSError):  # another process removes it, too
            lock = path / LOCK_NAME
            made_s = (lock if lock.exists() else path).lstat().st_mtime
            # Its owner may be about to lock it.
            if _is_mine(path) and time.time() - made_s > _LEFT_S and not is_locked(path):
                rmtree(path, ignore_errors=True)
