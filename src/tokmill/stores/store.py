"""A directory in an object store: objects by relative name. Every request is tried again.

fsspec has one way of speaking to all stores. An object appears whole under its name or not at all.
"""

from __future__ import annotations

import copy
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from tokmill.errors import StorageError, TokmillError, UsageError
from tokmill.storage import storage_errors
from tokmill.stores.entries import Entry, entry_of
from tokmill.stores.file_system import S3, create_object, open_file_system
from tokmill.stores.retry import Backoff, describe, retry
from tokmill.stores.urls import shown
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime
    from pathlib import Path

T = TypeVar("T")

CHUNK_BYTES = 16 << 20
"""Bytes that one request reads or writes; a request that fails begins again with as many."""

_CONCURRENT = 4
"""Requests at once for a large object: 64 MiB of memory."""


class Store:
    """A directory in an object store; opened by its URL, without a request.

    `url`: without secrets, for messages.
    """

    def __init__(self, url: str, backoff: Backoff | None = None) -> None:
        self.url = shown(url).rstrip("/")
        self._backoff = backoff
        self._fs, root = open_file_system(url)
        self._root = root.rstrip("/")
        if not self._root.strip("/"):
            raise UsageError(f"{self.url}: expected a bucket and a name, as in s3://bucket/name")

    def with_backoff(self, backoff: Backoff) -> Store:
        """Return the same place, whose requests are tried again as `backoff` says."""
        other = copy.copy(self)
        other._backoff = backoff
        return other

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _try(self, name: str, action: Callable[[], T]) -> T:
        where = f"{self.url}/{name}" if name else self.url
        with _store_errors(where):
            return retry(action, where, self._backoff)

    def entries(self) -> dict[str, Entry]:
        """Return every object by relative name, sorted."""

        def look() -> dict[str, Any]:
            self._fs.invalidate_cache()
            found: dict[str, Any] = self._fs.find(self._root, detail=True)
            return found

        try:
            found = self._try("", look)
        except FileNotFoundError:
            return {}
        prefix = f"{self._root}/".lstrip("/")
        names = ((path.lstrip("/"), info) for path, info in found.items())
        return {
            path[len(prefix) :]: entry_of(info, path)
            for path, info in sorted(names, key=lambda item: item[0])
            if path.startswith(prefix) and path != prefix
        }

    def sizes(self) -> dict[str, int]:
        """Return the bytes of every object, by relative name, sorted."""
        return {name: entry.n_bytes for name, entry in self.entries().items()}

    def names(self, folder: str) -> list[str]:
        """Return the names of the objects below a folder, relative to the store's directory."""

        def look() -> list[str]:
            self._fs.invalidate_cache()
            return list(self._fs.find(self._path(folder)))

        try:
            found = self._try(folder, look)
        except FileNotFoundError:
            return []
        n = len(self._root.lstrip("/")) + 1
        return sorted(path.lstrip("/")[n:] for path in found)

    def entry(self, name: str) -> Entry | None:
        """Return the size and the stamp of an object; None if it is not there."""

        def look() -> dict[str, Any]:
            self._fs.invalidate_cache(self._path(name))
            found: dict[str, Any] = self._fs.info(self._path(name))
            return found

        try:
            info = self._try(name, look)
        except FileNotFoundError:
            return None
        return entry_of(info, f"{self.url}/{name}") if info.get("type") != "directory" else None

    def size(self, name: str) -> int | None:
        """Return the bytes of an object; None if it is not there."""
        entry = self.entry(name)
        return None if entry is None else entry.n_bytes

    def modified(self, name: str) -> datetime:
        """Return when an object was written, by the clock of the store.

        Raises:
            NotImplementedError: the store does not say.
        """

        def look() -> datetime:
            self._fs.invalidate_cache(self._path(name))
            found: datetime = self._fs.modified(self._path(name))
            return found

        return self._try(name, look)

    def read(self, name: str) -> bytes:
        """Return the content of a small object; raises `FileNotFoundError`."""

        def get() -> bytes:
            content: bytes = self._fs.cat_file(self._path(name))
            return content

        return self._try(name, get)

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        """Return the bytes `start` to `stop` of an object; raises `FileNotFoundError`."""

        def get() -> bytes:
            chunk: bytes = self._fs.cat_file(self._path(name), start=start, end=stop)
            if len(chunk) > stop - start:
                raise StorageError(
                    f"{self.url}/{name}: the server does not answer with the bytes that were asked "
                    "for: copy the file to a disk first"
                )
            if len(chunk) != stop - start:
                raise TimeoutError(f"{len(chunk):,} of {stop - start:,} bytes came")
            return chunk

        return self._try(name, get)

    def chunks(self, name: str, n_bytes: int) -> Iterator[bytes]:
        """Yield the first `n_bytes` of an object, `CHUNK_BYTES` at a time."""
        for start in range(0, n_bytes, CHUNK_BYTES):
            yield self.read_range(name, start, min(start + CHUNK_BYTES, n_bytes))

    def write(self, name: str, data: bytes) -> None:
        """Write a small object; one of that name is replaced."""
        self._write(name, lambda: self._fs.pipe_file(self._path(name), data))

    def _write(self, name: str, action: Callable[[], object]) -> None:
        try:
            self._try(name, action)
        except FileNotFoundError as error:
            raise self._no_place(name, error) from None

    def _no_place(self, name: str, error: Exception) -> StorageError:
        return StorageError(
            f"{self.url}/{name}: no such bucket or folder ({describe(error)}): make it first"
        )

    def create(self, name: str, data: bytes) -> bytes:
        """Write a small object if there is none of that name; return what stands there now.

        Raises:
            StorageError: the store has no conditional writes.
        """
        with suppress(FileExistsError):
            self.write_new(name, data)
        return self.read(name)

    def write_new(self, name: str, data: bytes) -> None:
        """Write a small object under a new name.

        A request whose answer was lost is made again, and then finds its own object.

        Raises:
            FileExistsError: there is an object of that name.
            StorageError: the store has no conditional writes.
        """
        try:
            self._write(name, lambda: create_object(self._fs, self._path(name), data))
        except (NotImplementedError, TypeError, ValueError) as error:
            raise StorageError(
                f"{self.url}: this store has no conditional writes ({describe(error)}): write to a "
                "directory, and copy the dataset"
            ) from None

    def upload(self, path: Path, name: str) -> None:
        """Copy a file to an object; large ones in several requests, which fail or end together.

        Raises:
            StorageError: the object has another size than the file.
        """
        with storage_errors(path):
            expected = path.stat().st_size
        self._put(path, name, expected)
        found = self.size(name)
        if found != expected:
            is_there = "it is gone" if found is None else f"found {found:,}"
            raise StorageError(
                f"{self.url}/{name}: expected {plural(expected, 'byte')} after writing it, "
                f"{is_there}: run the same command again to make it again"
            )

    def _put(self, path: Path, name: str, n_bytes: int) -> None:
        options: dict[str, Any] = {}
        if self._protocols & set(S3):
            options = {"chunksize": CHUNK_BYTES, "max_concurrency": _CONCURRENT}

        def put() -> None:
            self._fs.put_file(str(path), self._path(name), **options)

        for attempt in (1, 2):
            try:
                self._try(name, put)
            except FileNotFoundError as error:
                # If the answer to the last request of many was lost, the store no longer knows
                # the upload when it is asked again, and the object is there.
                if not self._holds(name, path, n_bytes):
                    if attempt == 1:
                        continue
                    raise self._no_place(name, error) from None
            return

    def _holds(self, name: str, path: Path, n_bytes: int) -> bool:
        """Return whether an object has the bytes of a file; another may have its size."""
        if self.size(name) != n_bytes:
            return False
        with storage_errors(path), path.open("rb") as file, suppress(FileNotFoundError):
            return all(chunk == file.read(len(chunk)) for chunk in self.chunks(name, n_bytes))
        return False

    def download(self, name: str, n_bytes: int, path: Path) -> None:
        """Copy the `n_bytes` of an object to a new file."""
        with path.open("wb") as file:
            for chunk in self.chunks(name, n_bytes):
                file.write(chunk)

    def remove(self, name: str) -> None:
        """Remove an object, if it is there."""
        with suppress(FileNotFoundError):
            self._try(name, lambda: self._fs.rm_file(self._path(name)))

    @property
    def _protocols(self) -> set[str]:
        found = self._fs.protocol
        return {found} if isinstance(found, str) else set(found)


@contextmanager
def _store_errors(where: str) -> Iterator[None]:
    """Turn errors of a store that last into one line; a caller may expect some of them."""
    try:
        yield
    except (TokmillError, FileNotFoundError, FileExistsError, NotImplementedError):
        raise
    except (TypeError, ValueError):  # an option that this store does not have
        raise
    except PermissionError as error:
        raise StorageError(
            f"{where}: the store refused ({describe(error)}): check the credentials and their "
            "rights: to list, read, write and remove"
        ) from None
    except Exception as error:
        raise StorageError(f"{where}: {describe(error)}") from None


def remove_all(store: Store, names: Iterable[str], check: Callable[[], None]) -> None:
    """Remove objects, one after the other, in this order; `check` is called before each."""
    for name in names:
        check()
        store.remove(name)
