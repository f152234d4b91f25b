"""`.csv.gz` of OLMo-core: a line `start,end` for each document, in tokens, end exclusive.

Made from whole arrays of numbers, since a shard of 1 GiB may have a million documents. The text is
cut into chunks of a fixed number of documents, and each is a gzip member, compressed on a thread of
its own: the bytes depend on the numbers alone, not on time or threads.
"""

from __future__ import annotations

import zlib
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from tokmill.bill.measuring.machine import usable_cores

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

CHUNK_DOCUMENTS = 1 << 17
_GZIP = 16 + zlib.MAX_WBITS
_MEMBER_BYTES = 64
"""More than the header, the end and the block headers of a member of incompressible text need."""


def most_bytes(n_documents: int, n_tokens: int) -> int:
    """Return a bound of the size of a `.csv.gz`."""
    n_members = -(-n_documents // CHUNK_DOCUMENTS)
    text = n_documents * 2 * (len(str(n_tokens)) + 1)
    return text + text // 100 + n_members * _MEMBER_BYTES


def write_csv(file: BinaryIO, ends: Iterable[npt.NDArray[np.int64]]) -> None:
    """Write the spans of documents that stand end to end, compressed.

    `ends`: arrays of `CHUNK_DOCUMENTS` ends each, but for the last one. Memory: a few MiB a thread.
    """
    n_threads = usable_cores()
    with ThreadPoolExecutor(n_threads) as threads:
        waiting: deque[Any] = deque()
        for numbers in _with_starts(ends):
            waiting.append(threads.submit(_member, numbers))
            if len(waiting) > n_threads:
                file.write(waiting.popleft().result())
        for member in waiting:
            file.write(member.result())


def _with_starts(
    ends: Iterable[npt.NDArray[np.int64]],
) -> Iterator[npt.NDArray[np.int64]]:
    """Yield each array with the end of the document before it in front."""
    last = np.zeros(1, np.int64)
    for array in ends:
        yield np.concatenate([last, array])
        last = array[-1:]


def _member(numbers: npt.NDArray[np.int64]) -> bytes:
    # Digits repeat at no distance worth a search: runs and Huffman codes are half of the time of
    # level 1, and a fifth larger.
    packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP, zlib.DEF_MEM_LEVEL, zlib.Z_RLE)
    return packer.compress(csv_text(numbers)) + packer.flush()


def csv_text(numbers: npt.NDArray[np.int64]) -> bytes:
    """Return a line `a,b` for each two neighbours of ascending numbers from 0."""
    pieces, n = [], len(numbers) - 1
    row = 0
    while row < n:
        width = len(str(int(numbers[row])))
        same = int(np.searchsorted(numbers, 10**width))  # numbers before it have this width
        if same - 1 <= row:
            pieces.append(b"%d,%d\n" % (numbers[row], numbers[row + 1]))
            row += 1
            continue
        pieces.append(_rows(numbers[row:same], width))
        row = same - 1
    return b"".join(pieces)


def _rows(numbers: npt.NDArray[np.int64], width: int) -> bytes:
    """Return the lines of numbers that all have `width` digits."""
    digits = _digits(numbers, width)
    rows = np.empty((len(numbers) - 1, 2 * width + 2), np.uint8)
    rows[:, :width] = digits[:-1]
    rows[:, width] = ord(",")
    rows[:, width + 1 : -1] = digits[1:]
    rows[:, -1] = ord("\n")
    return rows.tobytes()


def _digits(numbers: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.uint8]:
    """Return the decimal digits as ASCII: (n, width)."""
    n_groups = -(-width // 4)
    groups = np.empty((len(numbers), n_groups), np.uint32)
    for group in range(n_groups - 1, -1, -1):
        above = numbers // 10_000
        groups[:, group] = _FOUR_DIGITS[numbers - above * 10_000]
        numbers = above
    return groups.view(np.uint8)[:, 4 * n_groups - width :]


_FOUR_DIGITS = np.frombuffer("".join(f"{i:04}" for i in range(10_000)).encode(), np.uint32)
"""The ASCII of four digits in one number, for 0 to 9,999."""
