"""Pack samples into rows of a given length: best-fit-decreasing over a split, deterministic.

Samples are placed from the longest to the shortest; equal lengths in their order. Each goes to the
row with the least room that is enough; among equal rows, to the one that reached that room first.
If there is none, a new row begins. No sample is split.

Samples of one length are placed in groups: the best row for the first stays the best until it is
full, so rows with room f take f // length samples each. Python works once for each group of rows
and length; NumPy does the work for each sample.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tokmill.errors import UsageError
from tokmill.words.plural import plural

if TYPE_CHECKING:
    import numpy.typing as npt


MEMORY_BYTES_PER_SAMPLE = 45
"""Peak memory, lengths included: 32 at ten samples a row, 45 at one. A test measures it."""


@dataclass(frozen=True, slots=True)
class Packing:
    """Rows of samples: row r is `order[row_offsets[r]:row_offsets[r + 1]]`, at least one sample.

    `row_offsets`: (n_rows + 1,) int64. `order`: (n_samples,) int64, every sample number once,
    increasing within a row. Rows are in the order of their first sample; in the order of creation
    the first rows would have all the longest samples.
    """

    row_offsets: npt.NDArray[np.int64]
    order: npt.NDArray[np.int64]

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return len(self.row_offsets) - 1


def pack(lengths: npt.NDArray[np.integer], capacity: int) -> Packing:
    """Pack samples of (n,) lengths into rows of at most `capacity` tokens.

    Memory: `MEMORY_BYTES_PER_SAMPLE` with `lengths` in int32; the result takes 8, and 8 a row.

    Raises:
        UsageError: a sample is longer than a row, or empty.
    """
    n = len(lengths)
    _check(lengths, capacity)
    if not n:
        return Packing(np.zeros(1, np.int64), np.zeros(0, np.int64))
    rows = _Rows(capacity)
    counts = np.bincount(lengths)
    distinct = np.flatnonzero(counts)[::-1]
    for length, count in zip(distinct.tolist(), counts[distinct].tolist(), strict=True):
        rows.take(length, count)
    by_length = _sorted_by(capacity - lengths.astype(np.int64), n)
    row_of = np.empty(n, np.int64)
    row_of[by_length] = rows.of_samples()
    del by_length
    return _in_order(row_of, rows.n)


def _check(lengths: npt.NDArray[np.integer], capacity: int) -> None:
    if not len(lengths):
        return
    for i in (int(lengths.argmax()), int(lengths.argmin())):
        if not 1 <= lengths[i] <= capacity:
            raise UsageError(
                f"sample {i}: {plural(int(lengths[i]), 'token')}, but a packed row holds "
                f"1 to {capacity}: set --max-tokens to at most {capacity}"
            )


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


def _in_order(row_of: npt.NDArray[np.int64], n_rows: int) -> Packing:
    """Return rows in the order of their first sample, from the row of each sample (overwritten)."""
    n = len(row_of)
    first = np.full(n_rows, n)
    np.minimum.at(first, row_of, np.arange(n))
    rank = np.empty(n_rows, np.int64)
    rank[np.argsort(first)] = np.arange(n_rows)
    row_of[:] = rank[row_of]
    row_offsets = np.zeros(n_rows + 1, np.int64)
    np.cumsum(np.bincount(row_of, minlength=n_rows), out=row_offsets[1:])
    return Packing(row_offsets, _sorted_by(row_of, n))


_Range = tuple[int, int]
"""Rows start:stop, by their number in the order of creation."""


@dataclass(slots=True)
class _Rows:
    """The rows so far, by their free room.

    `spaces`: all rooms of rows, increasing. `queues`: the rows of each room, in the order in which
    they reached it. `starts`, `n_rows`, `n_each`: the placements in order: rows
    `starts:starts + n_rows` took `n_each` samples each.
    """

    capacity: int
    n: int = 0
    spaces: list[int] = field(default_factory=list)
    queues: dict[int, deque[_Range]] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    n_rows: list[int] = field(default_factory=list)
    n_each: list[int] = field(default_factory=list)

    def take(self, length: int, count: int) -> None:
        """Place `count` samples of one length, not longer than those before."""
        first = last = bisect_left(self.spaces, length)
        changed: list[tuple[int, _Range]] = []
        while count and last < len(self.spaces):
            space = self.spaces[last]
            queue = self.queues[space]
            while queue and count:
                start, stop = queue.popleft()
                count, taken = self._fill((start, stop), space, length, count, changed)
                if taken < stop:
                    queue.appendleft((taken, stop))
            if queue:
                break
            del self.queues[space]
            last += 1
        del self.spaces[first:last]
        if count:
            new = (self.n, self.n - (-count // (self.capacity // length)))
            self._fill(new, self.capacity, length, count, changed)
            self.n = new[1]
        for space, rows in changed:
            self._put(space, rows)

    def _fill(
        self,
        rows: _Range,
        space: int,
        length: int,
        count: int,
        changed: list[tuple[int, _Range]],
    ) -> tuple[int, int]:
        """Fill rows of one room; return the samples left, and the first row without a sample."""
        start, stop = rows
        most = space // length
        full = min(stop - start, count // most)
        if full:
            self._note(start, full, most)
            changed.append((space - most * length, (start, start + full)))
            start, count = start + full, count - full * most
        if count and start < stop:
            self._note(start, 1, count)
            changed.append((space - count * length, (start, start + 1)))
            start, count = start + 1, 0
        return count, start

    def _note(self, start: int, n_rows: int, n_each: int) -> None:
        self.starts.append(start)
        self.n_rows.append(n_rows)
        self.n_each.append(n_each)

    def _put(self, space: int, rows: _Range) -> None:
        if not space:
            return
        queue = self.queues.get(space)
        if queue is None:
            insort(self.spaces, space)
            self.queues[space] = deque([rows])
        elif queue[-1][1] == rows[0]:
            queue[-1] = (queue[-1][0], rows[1])
        else:
            queue.append(rows)

    def of_samples(self) -> npt.NDArray[np.int64]:
        """Return the row of every sample, in the order of placement: (n_samples,)."""
        starts, n_rows, n_each = (
            np.array(noted, np.int64) for noted in (self.starts, self.n_rows, self.n_each)
        )
        firsts = np.cumsum(n_rows) - n_rows
        taking = np.repeat(starts - firsts, n_rows)
        taking += np.arange(len(taking))
        return np.repeat(taking, np.repeat(n_each, n_rows))
