"""An object as a file of bytes: read by ranges that grow, the next one ahead of time."""

from __future__ import annotations

import io
from functools import partial
from typing import TYPE_CHECKING

from tokmill.errors import StorageError, UsageError
from tokmill.stores.connections import Entry, Store, begun
from tokmill.stores.opening import open_store
from tokmill.urls import shown
from tokmill.words import plural

if TYPE_CHECKING:
    from concurrent.futures import Future

FIRST_BYTES = 64 << 10
"""Size of the first request after a jump: the head of a file needs no more."""

MOST_BYTES = 8 << 20
"""Size of the requests of a file that is read from one end to the other; two are in memory."""

_AHEAD_FROM_BYTES = 1 << 20

_MOST_SEEN = 4096

_last_seen: dict[str, Entry] = {}
"""What was last heard of an object, so that each of many samples of one needs no question."""


def located(url: str) -> tuple[Store, str]:
    """Return the directory of an object, and the object's name in it.

    Raises:
        UsageError: the URL names no object, or the package for it is not installed.
    """
    parent, _, name = url.rpartition("/")
    if not name or parent.endswith((":", ":/")):
        raise UsageError(f"{shown(url)}: expected a bucket and a name, as in s3://bucket/name")
    return open_store(parent), name


def look(url: str) -> Entry:
    """Return the size and the stamp of an object as it is now.

    Raises:
        StorageError: it is not there, or the store cannot be read.
    """
    store, name = located(url)
    entry = store.entry(name)
    if entry is None:
        raise StorageError(f"{shown(url)}: cannot be read: no such object")
    remember(url, entry)
    return entry


def remember(url: str, entry: Entry) -> None:
    """Keep what a listing said about an object; `ObjectFile` then need not ask again."""
    if len(_last_seen) >= _MOST_SEEN:
        _last_seen.clear()
    _last_seen[url] = entry


class ObjectFile(io.RawIOBase):
    """Reads an object; a file that pyarrow and the decoders of tokmill can read from.

    Requests grow while the file is read on, and the next one is made ahead of time. After a jump
    they begin small again.

    Raises:
        StorageError: the object is not there, cannot be read, or is replaced while it is read.
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = shown(url)
        self._store, self._name = located(url)
        self._entry = _last_seen.get(url) or look(url)
        self._position = 0
        self._start, self._data = 0, b""
        self._ahead: Future[bytes] | None = None
        self._ahead_bytes = 0

    def readable(self) -> bool:
        """Return that the file can be read."""
        return True

    def seekable(self) -> bool:
        """Return that the file can be read from any byte."""
        return True

    def tell(self) -> int:
        """Return the offset of the next byte."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a byte, and return its offset."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._entry.n_bytes}
        self._position = max(0, base[whence] + offset)
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Return the next `size` bytes, fewer only at the end of the object; -1: all."""
        left = max(0, self._entry.n_bytes - self._position)
        left = left if size < 0 else min(size, left)
        pieces = []
        while left:
            first = self._position - self._start
            if not 0 <= first < len(self._data):
                self._fetch(left)
                continue
            pieces.append(self._data[first : first + left])
            self._position += len(pieces[-1])
            left -= len(pieces[-1])
        return b"".join(pieces)

    def _fetch(self, wanted: int) -> None:
        """Get the bytes at the position, and begin to get those after them."""
        is_next = bool(self._data) and self._position == self._start + len(self._data)
        size = max(2 * len(self._data) if is_next else FIRST_BYTES, wanted)
        ahead, self._ahead = self._ahead, None  # it answers once, also if it raises
        if is_next and ahead is not None:
            self._data, size = ahead.result(), self._ahead_bytes
        else:
            size = min(size, MOST_BYTES, self._entry.n_bytes - self._position)
            self._data = self._range(self._position, self._position + size)
        self._start = self._position
        stop = self._start + len(self._data)
        if is_next and size >= _AHEAD_FROM_BYTES and stop < self._entry.n_bytes:
            self._ahead_bytes = min(2 * size, MOST_BYTES, self._entry.n_bytes - stop)
            self._ahead = begun(partial(self._range, stop, stop + self._ahead_bytes))

    def _range(self, start: int, stop: int) -> bytes:
        """Return a range of the object, which is still the one that was opened."""
        try:
            return self._store.read_range(self._name, start, stop)
        except (FileNotFoundError, StorageError) as error:
            now = self._store.entry(self._name)
            if now == self._entry and isinstance(error, StorageError):
                raise
            state = "it is gone" if now is None else f"{plural(now.n_bytes, 'byte')} now"
            raise StorageError(
                f"{self._url}: changed while it was read: "
                f"{plural(self._entry.n_bytes, 'byte')} before, {state}; run again with "
                "--overwrite when nothing writes to it"
            ) from None
