"""A file of a dataset that stands in an object store, read by ranges, as `OpenFile` reads a disk.

A range is what was asked for; of small reads a block is kept, as an index is asked for its
neighbours. Once a second a read looks whether the object is still the one that was opened.
"""

from __future__ import annotations

import time
from functools import lru_cache
from typing import TYPE_CHECKING

from tokmill.errors import StorageError, VerifyError
from tokmill.stores.connections import PIECE_BYTES
from tokmill.stores.objects import located
from tokmill.urls import shown, store_url
from tokmill.words import plural

if TYPE_CHECKING:
    from pathlib import PurePath

BLOCK_BYTES = 64 << 10
_MOST_BLOCKS = 16
"""Blocks of a file that are kept: 1 MiB."""

_LOOK_S = 1.0


class StoredFile:
    """An object of a store, open for reading by position. Safe to use from several threads.

    Attributes:
        path: its URL, without secrets, for messages.
        n_bytes: its size.
        fd: -1: it has no descriptor.
    """

    fd = -1

    def __init__(self, path: PurePath) -> None:
        """Look at an object; raises `FileNotFoundError` without one, and `StorageError`."""
        url = store_url(path)
        self.path = shown(url)
        self._store, self._name = located(url)
        found = self._store.entry(self._name)
        if found is None:
            raise FileNotFoundError(2, "no such object")
        self._entry, self.n_bytes = found, found.n_bytes
        self._next_look_s = time.monotonic() + _LOOK_S
        self._block = lru_cache(_MOST_BLOCKS)(self._read_block)

    @property
    def stamp(self) -> str:
        """Return what changes whenever the object is written."""
        return self._entry.stamp

    def read(self, start: int, n_bytes: int) -> bytes:
        """Return bytes at a position.

        Raises:
            VerifyError: the object ends before.
            StorageError: it cannot be read, or was replaced.
        """
        stop = start + n_bytes
        if stop > self.n_bytes:
            raise VerifyError(
                f"{self.path}: ends at byte {self.n_bytes:,}, expected {stop:,}; see tokmill verify"
            )
        self._look_now_and_then()
        if n_bytes > BLOCK_BYTES:
            return b"".join(self._pieces(start, stop))
        first = start // BLOCK_BYTES
        data = self._block(first)
        if stop > (first + 1) * BLOCK_BYTES:
            data += self._block(first + 1)
        return data[start - first * BLOCK_BYTES : stop - first * BLOCK_BYTES]

    def read_into(self, into: memoryview, start: int) -> None:
        """Fill bytes from a position; raises as `read`."""
        for done in range(0, len(into), PIECE_BYTES):
            n_bytes = min(PIECE_BYTES, len(into) - done)
            into[done : done + n_bytes] = self.read(start + done, n_bytes)

    def _read_block(self, number: int) -> bytes:
        start = number * BLOCK_BYTES
        return b"".join(self._pieces(start, min(start + BLOCK_BYTES, self.n_bytes)))

    def _pieces(self, start: int, stop: int) -> list[bytes]:
        try:
            return list(self._store.pieces(self._name, start, stop))
        except FileNotFoundError:
            raise StorageError(f"{self.path}: no such object: it was removed") from None

    def _look_now_and_then(self) -> None:
        """Check that the object was not replaced, when the last look is a second ago."""
        if time.monotonic() < self._next_look_s:
            return
        now = self._store.entry(self._name)
        if now != self._entry:
            state = "it is gone" if now is None else f"{plural(now.n_bytes, 'byte')} now"
            raise StorageError(
                f"{self.path}: was replaced while it was read: "
                f"{plural(self.n_bytes, 'byte')} before, {state}: run the same command again"
            )
        self._next_look_s = time.monotonic() + _LOOK_S
