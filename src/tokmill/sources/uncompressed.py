"""How large a compressed slice is without its compression, as far as its file says so itself."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tokmill.sources.zstd_frames import frame_starts
from tokmill.storage import storage_errors

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from tokmill.sources.slices import Slice

_HEADER_BYTES = 18
"""A zstandard frame's header is at most so long (RFC 8878, 3.1.1.1)."""

_SMALLEST_GZIP = 18


def unpacked_bytes(piece: Slice) -> int:
    """Give the decompressed bytes of a slice, or 0 where they are not known.

    zstandard: the sum over its frames, if each says its size. gzip: the size modulo 2^32 of its
    last member (RFC 1952, 2.3.1), which is the whole only of a file of one member below 4 GiB.

    Raises:
        StorageError: the file cannot be read.
    """
    path = piece.file.path
    if path == "-" or not piece.file.compression:
        return 0
    with storage_errors(path), Path(path).open("rb") as file:
        if piece.file.compression == "gz":
            if piece.file.n_bytes < _SMALLEST_GZIP:
                return 0
            file.seek(-4, os.SEEK_END)
            return int.from_bytes(file.read(4), "little")
        stop = piece.file.n_bytes if piece.stop < 0 else piece.stop
        total = 0
        for start in frame_starts(path, piece.start, stop):
            file.seek(start)
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
