"""The record that each document was made from: the bytes of `.origin`, and looking it up.

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

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from tokmill.dataset.file_array import FileArray, open_file
from tokmill.dataset.layout import ORIGIN
from tokmill.errors import UsageError, VerifyError
from tokmill.storage import read_errors
from tokmill.urls import shown_place
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tokmill.dataset.manifest import Manifest, ShardRow

    Numbers = npt.NDArray[np.int64]

GROUP = 4096
"""Documents after which differences begin again from 0."""

_SLICE_BITS = 36
_MOST_BYTES = 9
"""Bytes of the largest number: 63 bits."""

_SCAN_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a document stands, and the record that it was made from.

    Attributes:
        split: `train` or `val`.
        shard: name of its shard, without an ending.
        place: its number in the shard, from 0.
        path: its input file.
        record: the number of its record in the file, from 1: the line in JSON Lines, the row of a
            table, the element of an array. Several samples can have one record.
        byte: the byte of the file at which the record begins, decompressed; -1 for rows of Parquet
            and Arrow, which have none.
    """

    split: str
    shard: str
    place: int
    path: str
    record: int
    byte: int

    def __str__(self) -> str:
        """Return the path, the record and the byte in words."""
        byte = f", byte {self.byte:,}" if self.byte >= 0 else ""
        return f"{self.path}, record {self.record:,}{byte}"


class OriginFinder:
    """Finds the origin of documents in the `.origin` of their shard and the manifest."""

    def __init__(self, directory: Path, manifest: Manifest) -> None:
        self._directory = directory
        self._manifest = manifest
        self._entries = {entry.name: entry for entry in manifest.shards}

    def find(self, shard: str, place: int) -> Origin:
        """Return the origin of document `place` of a shard.

        Raises:
            UsageError: the dataset has no origins.
            VerifyError: the file of origins is missing or damaged.
        """
        entry = self._entries[shard]
        path, first_slice = self._opened(entry)
        with read_errors(path):
            numbers = numbers_of(FileArray(open_file(path), np.uint8), place)
        slice_index, record, byte = as_places(numbers).ravel().tolist()
        number = first_slice + slice_index
        source = int(np.searchsorted(self._stops, number, "right"))
        if slice_index < 0 or source == len(self._stops) or record < 1:
            raise VerifyError(f"{path}: document {place} has no record: see tokmill verify")
        file = self._manifest.input_files[source]
        before = file.slices[: number - int(self._stops[source]) + len(file.slices)]
        record += sum(length.records for length in before)
        byte += sum(length.bytes for length in before)  # of rows without a byte, too
        return Origin(entry.split, shard, place, file.path, record, byte)

    def sources(self, entry: ShardRow) -> npt.NDArray[np.int64]:
        """Return the source of each document of a shard: (n,) int64; raises as `find`."""
        path, first_slice = self._opened(entry)
        with read_errors(path):
            groups = read_groups(FileArray(open_file(path), np.uint8))
            slices = np.concatenate([as_places(numbers)[0] for numbers in groups])
        stops = self._stops[:-1]  # whatever is beyond belongs to the last
        sources: npt.NDArray[np.int64] = np.searchsorted(stops, slices + first_slice, "right")
        return sources

    def records(self, entry: ShardRow) -> npt.NDArray[np.int64]:
        """Return the number of each document's record in its file, from 1: (n,) int64."""
        path, first_slice = self._opened(entry)
        with read_errors(path):
            groups = read_groups(FileArray(open_file(path), np.uint8))
            slices, records, _ = np.concatenate([as_places(n) for n in groups], axis=1)
        own: npt.NDArray[np.int64] = records + self._records_before[slices + first_slice]
        return own

    def made_of(self, entry: ShardRow, records: Sequence[tuple[int, int]]) -> Numbers:
        """Return the documents of a shard that were made of some records: (n,) int64.

        `records`: the number of the slice in the dataset, and that of the record in the slice.
        """
        path, first = self._opened(entry)
        keys = [(piece - first << _SLICE_BITS) + number for piece, number in records]
        with read_errors(path):
            groups = [
                numbers[:, 0] for numbers in read_groups(FileArray(open_file(path), np.uint8))
            ]
            return np.flatnonzero(np.isin(np.concatenate(groups), keys))

    def may_hold(self, sources: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return which shards can have documents of some sources: those whose part reads them."""
        firsts = np.array([entry.first_slice or 0 for entry in self._entries.values()])
        of_parts = np.append(np.unique(firsts), self._stops[-1:])
        stops = of_parts[np.searchsorted(of_parts[:-1], firsts, "right")]
        n_before = np.append(0, np.cumsum(sources))
        low, high = (np.searchsorted(self._stops, n, "right") for n in (firsts, stops - 1))
        return n_before[high + 1] > n_before[low]

    def _opened(self, entry: ShardRow) -> tuple[Path, int]:
        """Return the file of the origins of a shard, and the number of its first slice."""
        if entry.first_slice is None:
            raise UsageError(
                f"{shown_place(self._directory)}: "
                "does not say which records its documents came from: a dataset "
                "of imported tokens has no .origin files"
            )
        return self._directory / f"{entry.name}.{ORIGIN}", entry.first_slice

    @cached_property
    def _records_before(self) -> npt.NDArray[np.int64]:
        """Return the records of a file that stand before each slice of it: (n_slices,) int64."""
        before: list[int] = []
        for source in self._manifest.input_files:
            lengths = [length.records for length in source.slices] or [0]
            before += [0, *accumulate(lengths[:-1])]
        return np.array(before, np.int64)

    @cached_property
    def _stops(self) -> npt.NDArray[np.int64]:
        """Return the slices up to the end of each source: (n,) int64.

        Raises:
            VerifyError: the manifest has something else in the place of the sources.
        """
        files = self._manifest.input_files
        counts = (file.n_slices for file in files)
        return np.fromiter(accumulate(counts), np.int64, len(files))


def origins_problem(path: Path, n_documents: int, n_slices: int) -> str:
    """Return a line on what is wrong with a file of origins, or ''; memory is that of a group.

    `n_slices`: of the dataset from the first slice of the shard's part on.
    """
    n_found = 0
    try:
        for numbers in read_groups(FileArray(open_file(path), np.uint8)):
            slices, records, offsets = as_places(numbers)
            least = min(slices.min(), records.min() - 1, offsets.min() + 1)
            if least < 0 or slices.max() >= n_slices:
                return "a document has no record of the sources"
            n_found += len(numbers)
    except ValueError as error:
        return str(error)
    problem = f"{plural(n_found, 'origin')}, expected {plural(n_documents, 'document')}"
    return problem if n_found != n_documents else ""


def origin_numbers(slice_index: int, places: Numbers) -> Numbers:
    """Return the numbers of documents from the line and byte of each in one slice: (n, 2) int64."""
    numbers: Numbers = places + np.array((slice_index << _SLICE_BITS, 0))
    return numbers


def as_places(numbers: Numbers) -> Numbers:
    """Return the slice of documents, and the record and the byte in it, from (n, 2): (3, n)."""
    keys, offsets = numbers.T
    return np.stack((*slices_of(keys), offsets))


def slices_of(keys: Numbers) -> tuple[Numbers, Numbers]:
    """Return the slices and the records in them of the first numbers of documents: (n,) each."""
    return keys >> _SLICE_BITS, keys & ((1 << _SLICE_BITS) - 1)


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
    encoded = (left & np.uint64(127)) | ((left > 127).astype(np.uint64) << np.uint64(7))
    return bytes(encoded[is_byte].astype(np.uint8).data)


def read_groups(data: FileArray, start: int = 0) -> Iterator[Numbers]:
    """Yield the numbers of the documents of each group: (n, 2) int64; memory is that of a group.

    `start`: byte at which the first group begins.

    Raises:
        ValueError: the bytes are no numbers of documents.
    """
    while start < len(data):
        numbers, n_bytes = _group(data[start : start + 2 * GROUP * _MOST_BYTES])
        start += n_bytes
        yield numbers


def numbers_of(data: FileArray, document: int) -> Numbers:
    """Return the numbers of one document: (1, 2); reads all bytes before it, decodes its group.

    Raises:
        ValueError: the bytes do not hold it.
    """
    group, place = divmod(document, GROUP)
    start = _group_start(data, group)
    numbers, _ = _group(data[start : start + 2 * GROUP * _MOST_BYTES])
    if place >= len(numbers):
        raise ValueError("too few documents")
    return numbers[place : place + 1]


def read_numbers(path: Path, start: int, stop: int) -> Numbers:
    """Return the numbers of documents `start` to `stop - 1` of a shard: (n, 2) int64.

    Raises:
        VerifyError: the file is missing, or does not hold them.
        StorageError: the user may not read it.
    """
    first = start // GROUP
    with read_errors(path):
        data = FileArray(open_file(path), np.uint8)
        groups, n = [], first * GROUP
        for numbers in read_groups(data, _group_start(data, first)):
            groups.append(numbers)
            n += len(numbers)
            if n >= stop:
                break
        if n < stop:
            raise ValueError("too few documents")
    found: Numbers = np.concatenate(groups)[start - first * GROUP : stop - first * GROUP]
    return found


def _group_start(data: FileArray, group: int) -> int:
    """Return the byte at which a group of documents begins; raises `ValueError` if it does not."""
    n_left, start = 2 * GROUP * group, 0
    while n_left:
        ends = data[start : start + _SCAN_BYTES] < 128
        n_ends = int(np.count_nonzero(ends))
        if not n_ends:
            raise ValueError("too few documents")
        if n_ends >= n_left:
            return start + int(np.flatnonzero(ends)[n_left - 1]) + 1
        n_left, start = n_left - n_ends, start + len(ends)
    return start


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
