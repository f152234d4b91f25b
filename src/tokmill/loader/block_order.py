"""The order of `shuffle="blocks"`: blocks in a seeded order, and rows among some blocks at a time.

A block is the rows that begin in one shard. Reading stays among `n_together` shards for as long as
their rows last, so a network disk or a store is read in large pieces. Like the order of all rows
(`order.shuffled`), it is a bijection of [0, n) for each seed and epoch, a pure function of the
place, of which only the bounds of blocks are stored:

    m blocks of s_0 … s_(m-1) rows, which begin at rows b_0 … b_(m-1); n = s_0 + … + s_(m-1)
    p(j)     = shuffled(j, m, seed, epoch, stream = 2 * stream + 1), the block in place j
    group g  = blocks p(g k) … p(min(g k + k, m) - 1), k = n_together; it has N_g rows
    place i  = N_0 + … + N_(g-1) + r with 0 <= r < N_g: it is in group g
    q        = shuffled(r, N_g, seed', epoch, stream = 2 * stream), where
    seed'    = mix(mix(seed) ^ g), mix is splitmix64
    row      = b_(p(j)) + q - (rows of the blocks of the group before j), the j that holds q

So each row comes once in an epoch, whatever the number of ranks and the batch. The order never
changes between versions.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokmill.loader.order import mix, shuffled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]


class _Epoch(NamedTuple):
    """The blocks of an epoch, in their order.

    Attributes:
        firsts: the first row of each block: (m,).
        stops: places up to the end of each block: (m,).
        group_starts: the first place of each group: (n_groups,).
        group_sizes: rows of each group: (n_groups,).
    """

    firsts: Numbers
    stops: Numbers
    group_starts: Numbers
    group_sizes: Numbers


class BlockOrder:
    """The rows of a source in the order of blocks; see above.

    Args:
        starts: (m,) the first row of each block, increasing from 0.
        n_rows: of the source.
        n_together: blocks whose rows are mixed.
    """

    def __init__(self, starts: Numbers, n_rows: int, n_together: int) -> None:
        self._starts, self._sizes = starts, np.diff(starts, append=n_rows)
        self._together = n_together
        self._epoch = lru_cache(4)(self._make_epoch)

    def rows(self, positions: Numbers, epochs: Numbers, seed: int, stream: int) -> Numbers:
        """Return the rows at places of the order: (n,) int64.

        Args:
            positions: (n,) places, from 0.
            epochs: (n,) the epoch of each, from 0.
            seed: 0 to 2^64 - 1.
            stream: number of the source in a blend.
        """
        found = np.empty(len(positions), np.int64)
        for epoch in np.unique(epochs).tolist():
            own = np.flatnonzero(epochs == epoch)
            found[own] = self._rows_of_epoch(positions[own], epoch, seed, stream)
        return found

    def groups(
        self, positions: Numbers, epochs: Numbers, seed: int, stream: int
    ) -> tuple[Numbers, Numbers]:
        """Return the places at which the group of each place begins and ends: (n,) int64 each.

        Arguments are those of `rows`.
        """
        begins, ends = np.empty_like(positions), np.empty_like(positions)
        for epoch in np.unique(epochs).tolist():
            own = np.flatnonzero(epochs == epoch)
            blocks = self._epoch(epoch, seed, stream)
            group = np.searchsorted(blocks.group_starts, positions[own], side="right") - 1
            begins[own] = blocks.group_starts[group]
            ends[own] = begins[own] + blocks.group_sizes[group]
        return begins, ends

    def _rows_of_epoch(self, positions: Numbers, epoch: int, seed: int, stream: int) -> Numbers:
        blocks = self._epoch(epoch, seed, stream)
        groups = np.searchsorted(blocks.group_starts, positions, side="right") - 1
        places = np.empty(len(positions), np.int64)
        for group in np.unique(groups).tolist():
            own = np.flatnonzero(groups == group)
            first, n = int(blocks.group_starts[group]), int(blocks.group_sizes[group])
            places[own] = first + shuffled(
                positions[own] - first,
                n,
                seed=_seed_of_group(seed, group),
                epoch=epoch,
                stream=2 * stream,
            )
        block = np.searchsorted(blocks.stops, places, side="right")
        in_block = places - (blocks.stops[block] - self._size_of(blocks, block))
        rows: Numbers = blocks.firsts[block] + in_block
        return rows

    @staticmethod
    def _size_of(blocks: _Epoch, block: Numbers) -> Numbers:
        """Return the rows of blocks, by their places in the order of the epoch."""
        before = np.where(block > 0, blocks.stops[block - 1], 0)
        sizes: Numbers = blocks.stops[block] - before
        return sizes

    def _make_epoch(self, epoch: int, seed: int, stream: int) -> _Epoch:
        m = len(self._starts)
        order = shuffled(np.arange(m), m, seed=seed, epoch=epoch, stream=2 * stream + 1)
        stops = np.cumsum(self._sizes[order])
        last = np.minimum(np.arange(self._together, m + self._together, self._together), m) - 1
        group_stops = stops[last]
        sizes = np.diff(group_stops, prepend=0)
        return _Epoch(self._starts[order], stops, group_stops - sizes, sizes)


def _seed_of_group(seed: int, group: int) -> int:
    return int(mix(mix(np.array([seed], np.uint64)) ^ np.uint64(group))[0])
