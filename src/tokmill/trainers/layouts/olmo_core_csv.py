"""`.csv.gz` of OLMo-core: a line `start,end` for each document, in tokens, end exclusive.

Made from whole arrays of numbers, since a shard of 1 GiB may have a million documents. The text is
cut into chunks of a fixed number of documents, each a gzip member.
"""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

CHUNK_DOCUMENTS = 1 << 16
_LEVEL = 1  # of compression; higher ones take several times as long
_MEMBER_BYTES = 64
"""More than the header and the end of a member need."""


def most_bytes(n_documents: int, n_tokens: int) -> int:
    """Return a bound of the size of a `.csv.gz`; a character takes half a byte."""
    n_members = -(-n_documents // CHUNK_DOCUMENTS)
    return n_documents * (len(str(n_tokens)) + 1) + n_members * _MEMBER_BYTES


def write_csv(file: BinaryIO, ends: Iterable[npt.NDArray[np.int64]]) -> None:
    """Write the spans of documents that stand end to end, compressed; memory: a few MiB.

    `ends`: arrays of `CHUNK_DOCUMENTS` ends each, but for the last one.
    """
    last = np.zeros(1, np.int64)
    for array in ends:
        text = csv_text(np.concatenate([last, array]))
        file.write(gzip.compress(text, _LEVEL, mtime=0))
        last = array[-1:]


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
