"""Frames and decompressed sizes of compressed files, as the files themselves state them."""

from __future__ import annotations

import mmap
import os
import sys
from contextlib import suppress
from pathlib import Path

from tokmill.sources.streams import open_binary
from tokmill.storage import storage_errors
from tokmill.urls import is_store

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_HEADER_BYTES = 18
"""Length of the longest header of a zstandard frame (RFC 8878, 3.1.1.1)."""

_SMALLEST_GZIP = 18


def frame_starts(path: str, start: int = 0, stop: int = -1) -> list[int]:
    """Return where zstandard frames begin in the bytes `start` to `stop` (-1: the end) of a file.

    `start` must be where a frame begins. The list ends at the first frame that is cut short. It is
    empty for an object in a store: all of it would have to be read.

    Raises:
        StorageError: the file cannot be read.
    """
    starts: list[int] = []
    if is_store(path):
        return starts
    stop = Path(path).stat().st_size if stop < 0 else stop
    if start >= stop:
        return starts
    with (
        open_binary(path) as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as data,
        suppress(zstd.ZstdError),
    ):
        while start < stop:
            starts.append(start)
            with data[start:] as rest:
                start += zstd.get_frame_size(rest)
    return starts


def decompressed_bytes(path: str, compression: str, start: int = 0, stop: int = -1) -> int:
    """Return the decompressed size of bytes `start` to `stop` (-1: the end), 0 where not stated.

    zstandard: the sum over its frames, if each states its size; 0 in a store. gzip: the size modulo
    2^32 of its last member (RFC 1952, 2.3.1); that is the size of the file only if it has one
    member of less than 4 GiB.

    Raises:
        StorageError: the file cannot be read.
    """
    if path == "-" or not compression:
        return 0
    with storage_errors(path), open_binary(path) as file:
        if compression == "gz":
            if file.seek(0, os.SEEK_END) < _SMALLEST_GZIP:
                return 0
            file.seek(-4, os.SEEK_END)
            return int.from_bytes(file.read(4), "little")
        total = 0
        for frame in frame_starts(path, start, stop):
            file.seek(frame)
            n_bytes = _frame_bytes(file.read(_HEADER_BYTES))
            if n_bytes is None:
                return 0
            total += n_bytes
        return total


def _frame_bytes(header: bytes) -> int | None:
    try:
        return zstd.get_frame_info(header).decompressed_size
    except zstd.ZstdError:
        return None
