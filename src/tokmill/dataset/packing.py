"""Packing: samples, or pieces of documents, into rows of a given length.

Packing is best-fit-decreasing, and deterministic. Samples are placed from the longest to the
shortest; equal lengths in their order. Each goes to the row with the least room that is enough;
among equal rows, to the one that reached that room first. If there is none, a new row begins. A row
may have a most number of samples; with so many, it is full.

Samples of one length are placed in groups: the best row for the first stays the best until it is
full, so rows with room f take f // length samples each. Python works once for each group of rows
and length; NumPy does the work for each sample.

Samples of SFT are packed whole, all of a split at once. Documents for pretraining are cut first:
one that is longer than a row gives full rows and a last piece. Pieces are packed in groups of
`GROUP_PIECES` consecutive ones, so that memory does not grow with their number.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.layout import DROP
from tokmill.errors import UsageError, VerifyError
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from tokmill.dataset.file_array import MappedFile

MEMORY_BYTES_PER_SAMPLE = 45
"""Peak memory of packing with the lengths: 32 at ten samples a row, 45 at one. A test checks it."""

GROUP_PIECES = 1 << 18
"""Pieces of documents that are packed at once. It decides the bytes of an index: format.md."""

MOST_LENGTH = 1 << 28
"""Most tokens of a row: padded rows may be written in full, and lengths are sorted by counting."""


@dataclass(frozen=True, slots=True)
class Packs:
    """Rows of samples: row r is `samples[row_offsets[r]:row_offsets[r + 1]]`, at least one sample.

    `row_offsets`: (n_rows + 1,) int64. `samples`: (n_samples,) int64, numbers in the split, every
    one once if samples are packed whole, increasing within a row. Rows are in the order of their
    first sample; in the order of creation the first rows would have all the longest samples.
    `pieces`: where documents are cut, (n_samples, 2) int32: first token and tokens of the piece of
    document `samples[i]`; None elsewhere. `files`: that the arrays are mapped from; () in memory.
    """

    row_offsets: npt.NDArray[np.int64]
    samples: npt.NDArray[np.int64]
    pieces: npt.NDArray[np.int32] | None = None
    files: tuple[MappedFile, ...] = field(default=(), compare=False)

    def check(self) -> None:
        """Check that the files are as long as they were; raises `VerifyError`.

        Numbers of a mapped index are read at once after it: see `file_array`.
        """
        for file in self.files:
            file.check()

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return len(self.row_offsets) - 1

    def row(self, i: int) -> npt.NDArray[np.int64]:
        """Return the samples of row `i`, by their numbers in the split."""
        return self.samples[self.span(i)]

    def row_pieces(self, i: int) -> list[slice]:
        """Return what row `i` has of each of its samples: spans of the sample's tokens."""
        if self.pieces is None:
            return [slice(None)] * len(self.row(i))
        return [slice(start, start + n) for start, n in self.pieces[self.span(i)].tolist()]

    def columns(self) -> list[npt.NDArray[Any]]:
        """Return the numbers of each file of the index: rows, samples; pieces, flat."""
        columns: list[npt.NDArray[Any]] = [self.row_offsets, self.samples]
        return columns if self.pieces is None else [*columns, self.pieces.reshape(-1)]

    def span(self, i: int) -> slice:
        """Return the places of row `i` in `samples` and `pieces`.

        Raises:
            VerifyError: the index is damaged: they are not there.
        """
        self.check()
        start, stop = int(self.row_offsets[i]), int(self.row_offsets[i + 1])
        if not 0 <= start < stop <= len(self.samples):
            raise VerifyError(f"pack index: row {i} has no samples; see tokmill verify")
        return slice(start, stop)


def pack(lengths: npt.NDArray[np.integer], capacity: int, max_samples: int = 0) -> Packs:
    """Pack samples of (n,) lengths into rows of at most `capacity` tokens.

    `max_samples`: in a row; 0: any number.

    Memory: `MEMORY_BYTES_PER_SAMPLE` with `lengths` in int32; the result takes 8, and 8 a row.

    Raises:
        UsageError: a sample is longer than a row, or empty.
    """
    n = len(lengths)
    if not n:
        return Packs(np.zeros(1, np.int64), np.zeros(0, np.int64))
    for i in (int(lengths.argmax()), int(lengths.argmin())):
        if not 1 <= lengths[i] <= capacity:
            raise UsageError(
                f"sample {i}: {plural(int(lengths[i]), 'token')}, but a packed row holds "
                f"1 to {capacity}: set --max-tokens to at most {capacity}"
            )
    rows = _Rows(capacity, max_samples or capacity)  # a sample has a token at least
    counts = np.bincount(lengths)
    distinct = np.flatnonzero(counts)[::-1]
    for length, count in zip(distinct.tolist(), counts[distinct].tolist(), strict=True):
        rows.take(length, count)
    by_length = _sorted_by(capacity - lengths.astype(np.int64), n)
    row_of = np.empty(n, np.int64)
    row_of[by_length] = rows.of_samples()
    del by_length
    return _in_order(row_of, rows.n)


def pack_documents(
    lengths: Iterable[npt.NDArray[np.integer]], capacity: int, last: str, max_samples: int = 0
) -> Iterator[Packs]:
    """Yield the packs of documents, cut into pieces of at most `capacity` tokens, group by group.

    The offsets of rows count in their group. Memory: about 64 MB with `GROUP_PIECES`.

    Args:
        lengths: of all documents of a split in order, some at a time: (n,) each, at least 1.
        capacity: tokens of a row.
        last: `FRAGMENT` or `DROP`: what becomes of the last pieces of documents that are cut.
        max_samples: pieces in a row, at most; 0: any number.
    """
    for documents, starts, sizes in _groups(lengths, capacity, last):
        packs = pack(sizes, capacity, max_samples)
        order = packs.samples
        pieces = np.stack([starts[order], sizes[order]], axis=1).astype(np.int32)
        yield Packs(packs.row_offsets, documents[order], pieces)


def _groups(
    lengths: Iterable[npt.NDArray[np.integer]], capacity: int, last: str
) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the pieces of documents, `GROUP_PIECES` at a time: (3, n) document, start, tokens.

    Pieces are in the order of the documents. A document of at most `capacity` tokens is a piece.
    """
    group: list[npt.NDArray[np.int64]] = []
    n_documents = n_left = 0
    for some in lengths:
        counts = np.maximum(some // capacity, 1) if last == DROP else -(-some // capacity)
        stops = np.cumsum(counts, dtype=np.int64)
        done, total = 0, int(stops[-1]) if len(stops) else 0
        while done < total:
            n_left = n_left or GROUP_PIECES
            numbers = np.arange(done, min(done + n_left, total))
            places = np.searchsorted(stops, numbers, side="right")
            starts = (numbers - stops[places] + counts[places]) * capacity
            sizes = np.minimum(some[places] - starts, capacity)
            group.append(np.stack([n_documents + places, starts, sizes]))
            done, n_left = done + len(numbers), n_left - len(numbers)
            if not n_left:
                pieces, group = np.concatenate(group, axis=1), []
                yield pieces
        n_documents += len(some)
    if group:
        yield np.concatenate(group, axis=1)


def _sorted_by(keys: npt.NDArray[np.int64], n: int) -> npt.NDArray[np.int64]:
    """Return 0 … n - 1 sorted by `keys` (below 2^31, overwritten); equal keys stay in order.

    Sorting integers that combine key and number takes a third of the time of a stable argsort.
    """
    bits = max(1, (n - 1).bit_length())
    keys <<= bits
    keys |= np.arange(n)
    keys.sort()
    keys &= (1 << bits) - 1
    return keys


def _in_order(row_of: npt.NDArray[np.int64], n_rows: int) -> Packs:
    """Return rows in the order of their first sample, from the row of each sample (overwritten)."""
    n = len(row_of)
    first = np.full(n_rows, n)
    np.minimum.at(first, row_of, np.arange(n))
    rank = np.empty(n_rows, np.int64)
    rank[np.argsort(first)] = np.arange(n_rows)
    row_of[:] = rank[row_of]
    row_offsets = np.zeros(n_rows + 1, np.int64)
    np.cumsum(np.bincount(row_of, minlength=n_rows), out=row_offsets[1:])
    return Packs(row_offsets, _sorted_by(row_of, n))


@dataclass(slots=True)
class _Rows:
    """The rows so far, as ranges of their numbers in the order of creation, by their free room.

    `max_samples`: in a row. `spaces`: all rooms of rows, increasing. `queues`: the rows of each
    room, in the order in which they reached it, and what each of them has: (first, end, samples).
    `placed`: the placements in order, three numbers each: the first row, rows, and samples that
    each of them took.
    """

    capacity: int
    max_samples: int
    n: int = 0
    spaces: list[int] = field(default_factory=list)
    queues: dict[int, deque[tuple[int, int, int]]] = field(default_factory=dict)
    placed: array[int] = field(default_factory=lambda: array("q"))

    def take(self, length: int, count: int) -> None:
        """Place `count` samples of one length, not longer than those before."""
        best = bisect_left(self.spaces, length)
        changed: list[tuple[int, int, int, int]] = []
        while count:
            if best == len(self.spaces):
                n_new = -(-count // min(self.capacity // length, self.max_samples))
                self._put(self.capacity, self.n, self.n + n_new, 0)
                self.n += n_new
            space = self.spaces[best]
            queue = self.queues[space]
            start, stop, n_samples = queue.popleft()
            most = min(space // length, self.max_samples - n_samples)
            n_rows, n_each = max(1, min(stop - start, count // most)), min(count, most)
            self.placed.extend((start, n_rows, n_each))
            changed.append((space - n_each * length, start, start + n_rows, n_samples + n_each))
            count -= n_rows * n_each
            if start + n_rows < stop:
                queue.appendleft((start + n_rows, stop, n_samples))
            if not queue:
                del self.queues[space], self.spaces[best]
        for space, start, stop, n_samples in changed:
            self._put(space, start, stop, n_samples)

    def _put(self, space: int, start: int, stop: int, n_samples: int) -> None:
        """Queue rows that have reached a room; full ones are done."""
        if not space or n_samples == self.max_samples:
            return
        queue = self.queues.get(space)
        if queue is None:
            insort(self.spaces, space)
            self.queues[space] = deque([(start, stop, n_samples)])
        elif queue[-1][1:] == (start, n_samples):
            queue[-1] = (queue[-1][0], stop, n_samples)
        else:
            queue.append((start, stop, n_samples))

    def of_samples(self) -> npt.NDArray[np.int64]:
        """Return the row of every sample, in the order of placement: (n_samples,)."""
        starts, n_rows, n_each = np.array(self.placed, np.int64).reshape(-1, 3).T
        firsts = np.cumsum(n_rows) - n_rows
        taking = np.repeat(starts - firsts, n_rows)
        taking += np.arange(len(taking))
        return np.repeat(taking, np.repeat(n_each, n_rows))
