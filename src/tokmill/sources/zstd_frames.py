"""Where the frames of a zstandard file begin: it can be cut there."""

from __future__ import annotations

import mmap
import sys
from contextlib import suppress
from pathlib import Path

from tokmill.sources.streams import open_binary

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


def frame_starts(path: str, start: int = 0, stop: int = -1) -> list[int]:
    """Return where zstandard frames begin in the bytes `start` to `stop` (-1: the end) of a file.

    `start` is where a frame begins. What comes behind a frame that cannot be told is left out.

    Raises:
        StorageError: the file cannot be read.
    """
    stop = Path(path).stat().st_size if stop < 0 else stop
    starts: list[int] = []
    if start >= stop:
        return starts
    with (
        open_binary(path) as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as data,
        suppress(zstd.ZstdError),  # a frame that is cut short has no size: it ends the list
    ):
        while start < stop:
            starts.append(start)
            with data[start:] as rest:
                start += zstd.get_frame_size(rest)
    return starts
