"""The bytes of `.origin`: the record that each document of a shard was made from.

A document has two numbers: its record (the slice of the part, shifted left by 36 bits, plus the
number of the record in the slice, from 1) and the byte at which the record begins in the slice (-1
for rows of a table). Each is stored as the difference from the document before, zigzag-coded
(0, -1, 1, -2 become 0, 1, 2, 3), seven bits a byte from the lowest, with the top bit set in all
bytes but the last (LEB128). So the record takes one byte, the byte two or three; a document in any
other order needs more bytes, and no other layout. Every `GROUP` documents the differences begin
again from 0, so that one document is found without decoding those before its group.

Records and bytes are counted in the slice, as a worker does not know the lines before it; the
manifest has the lengths of slices. General compression would save two thirds of the three bytes,
but then the bytes would depend on the version of a library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]

GROUP = 4096
"""Documents after which differences begin again from 0."""

_SLICE_BITS = 36
_MOST_BYTES = 9
"""Bytes of the largest number: 63 bits."""

_SCAN_BYTES = 1 << 20


def origin_numbers(slice_index: int, places: Numbers) -> Numbers:
    """Return the numbers of documents from the line and byte of each in one slice: (n, 2) int64."""
    numbers: Numbers = places + np.array((slice_index << _SLICE_BITS, 0))
    return numbers


def as_places(numbers: Numbers) -> Numbers:
    """Return the slice of documents, and the record and the byte in it, from (n, 2): (3, n)."""
    keys, offsets = numbers.T
    return np.stack((keys >> _SLICE_BITS, keys & ((1 << _SLICE_BITS) - 1), offsets))


class OriginEncoder:
    """Encodes the documents of a shard, in order; how they are divided changes no byte."""

    def __init__(self) -> None:
        self._n_documents = 0
        self._last = np.zeros((1, 2), np.int64)

    def encode(self, numbers: Numbers) -> bytes:
        """Return the bytes of the next documents; `numbers`: (n, 2), n > 0."""
        differences = np.diff(numbers, axis=0, prepend=self._last)
        first = -self._n_documents % GROUP
        differences[first::GROUP] = numbers[first::GROUP]
        self._n_documents += len(numbers)
        self._last = numbers[-1:].copy()
        flat = differences.ravel()
        values = ((flat << 1) ^ (flat >> 63)).view(np.uint64)
        return b"".join(_encoded(values[i : i + GROUP]) for i in range(0, len(values), GROUP))


def _encoded(values: npt.NDArray[np.uint64]) -> bytes:
    left = values[:, np.newaxis] >> np.arange(_MOST_BYTES, dtype=np.uint64) * np.uint64(7)
    is_byte = left > 0
    is_byte[:, 0] = True
    found = (left & np.uint64(127)) | ((left > 127).astype(np.uint64) << np.uint64(7))
    return bytes(found[is_byte].astype(np.uint8).data)


def read_groups(data: npt.NDArray[np.uint8]) -> Iterator[Numbers]:
    """Yield the numbers of the documents of each group: (n, 2) int64; memory is that of a group.

    Raises:
        ValueError: the bytes are no numbers of documents.
    """
    start = 0
    while start < len(data):
        numbers, n_bytes = _group(data[start : start + 2 * GROUP * _MOST_BYTES])
        start += n_bytes
        yield numbers


def numbers_of(data: npt.NDArray[np.uint8], document: int) -> Numbers:
    """Return the numbers of one document: (1, 2); reads all bytes before it, decodes its group.

    Raises:
        ValueError: the bytes do not hold it.
    """
    group, place = divmod(document, GROUP)
    n_left, start = 2 * GROUP * group, 0
    while n_left:
        ends = data[start : start + _SCAN_BYTES] < 128
        n_ends = int(np.count_nonzero(ends))
        if not n_ends:
            raise ValueError("too few documents")
        if n_ends >= n_left:
            start += int(np.flatnonzero(ends)[n_left - 1]) + 1
            break
        n_left, start = n_left - n_ends, start + len(ends)
    numbers, _ = _group(data[start : start + 2 * GROUP * _MOST_BYTES])
    if place >= len(numbers):
        raise ValueError("too few documents")
    return numbers[place : place + 1]


def _group(data: npt.NDArray[np.uint8]) -> tuple[Numbers, int]:
    """Return the numbers of the first group of documents, and the bytes that it takes."""
    stops = np.flatnonzero(data < 128)[: 2 * GROUP] + 1
    n_bytes = int(stops[-1]) if len(stops) else 0
    sizes = np.diff(stops, prepend=0)
    is_cut = len(stops) < 2 * GROUP and n_bytes < len(data)
    if is_cut or not n_bytes or len(stops) % 2 or int(sizes.max()) > _MOST_BYTES:
        raise ValueError("not the numbers of documents")
    bits = 7 * (np.arange(n_bytes) - np.repeat(stops - sizes, sizes))
    parts = (data[:n_bytes] & np.uint8(127)).astype(np.uint64) << bits.astype(np.uint64)
    values = np.bitwise_or.reduceat(parts, stops - sizes)
    half, sign = (values >> np.uint64(1)).view(np.int64), (values & np.uint64(1)).view(np.int64)
    numbers: Numbers = np.cumsum((half ^ -sign).reshape(-1, 2), axis=0)
    return numbers, n_bytes
