"""Balanced batches: the rows of a global batch dealt so that attention costs all ranks the same.

Ranks wait for the slowest one in every micro batch. Rows have equally many tokens, but a row of one
long document has many more pairs of tokens that attend to each other than a row of short ones. So
the rows of a global batch are dealt to its bins, a bin for each rank and micro batch, with equally
many rows in each: the batch as a whole has the same rows as without.

1. Partition: largest differencing with equal counts (Karmarkar and Karp 1982; Yakir 1996; Michiels
   and others, "Performance ratios for the Karmarkar-Karp differencing method", 2012). Rows from
   dear to cheap are cut into groups of one row for each bin. The two groups whose bins differ most
   are merged, the dearest bin of one with the cheapest of the other, until one group is left.
2. Exchanges: the dearest bin exchanges the pair of rows with a cheap one that lowers both most.
3. The dearest bins are the first micro batch, the next ones the second; in each, the rank with the
   least cost so far gets the dearest.

All of it is arithmetic of integers, and equal costs stay in order: every rank computes the same.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokmill.errors import UsageError
from tokmill.loader.source import checked_count

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

MOST_COST = 1 << 62
"""Costs of a global batch together are less: int64 holds their sums."""

COMPARED = 1 << 14
"""Pairs of rows that are compared for an exchange, at most, beyond those of two bins."""

COMPARED_IN_ALL = 1 << 18
"""Pairs of rows that are compared for a global batch, about: 1 ms."""

CLOSE = 1000
"""Exchanges end when the dearest bin is above the mean by less than one part in so many."""


@dataclass(frozen=True, slots=True)
class AttentionCost:
    """What a row costs: `token` x its tokens + `pair` x the sum of its squared document lengths.

    Only the ratio of the two counts. The default is that of a dense transformer of 4,096 hidden
    units: a layer has 12 h^2 parameters, so a token costs 72 h^2 FLOP, and each pair of tokens of a
    document costs 12 h FLOP, of which the causal mask spares half (PaLM, appendix B: 6 N + 12 L H Q
    T for a token). So attention costs as much as all else in a document of 12 h tokens.

    Attributes:
        token: FLOP of a token, without attention: a whole number from 0.
        pair: FLOP of the square of a document's length, per token^2: a whole number from 0.

    Raises:
        UsageError: one of them is no whole number from 0, or both are 0.

    Example:
        >>> cost = tokmill.loader.AttentionCost.of_model("llama-3-8b")
        >>> source = tokmill.loader.packs("sft", shift=False)
        >>> tokmill.loader.Loader(source, batch=2, world=2, balance=cost)
    """

    token: int = 12 * 4096
    pair: int = 1

    def __post_init__(self) -> None:
        for name in ("token", "pair"):
            object.__setattr__(self, name, checked_count(name, getattr(self, name), least=0))
        if not self.token and not self.pair:
            raise UsageError("token and pair are 0: rows would cost nothing; expected one above 0")

    @classmethod
    def of_model(cls, model: str | Path | Mapping[str, Any]) -> AttentionCost:
        """Return the cost of rows for a model, with its layers of full and of sliding attention.

        Args:
            model: a built-in name, the path of a config.json or its directory, or its contents.

        Raises:
            UsageError: the model is not known, or its configuration lacks something.
        """
        from tokmill.bill.compute import operations_of_rows
        from tokmill.bill.functions import model_of  # the bill is needed for this alone

        return cls(*operations_of_rows(model_of(model)))

    def of_rows(self, tokens: NDArray[np.int64], squares: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the costs of the rows of a global batch: (n,), in a unit of this batch.

        Args:
            tokens: of each row, at least 1: (n,).
            squares: sums of the squared lengths of the documents of each row: (n,).
        """
        dearest = self.token * int(tokens.max()) + self.pair * int(squares.max())
        if len(tokens) * dearest < MOST_COST:
            return self.token * tokens + self.pair * squares
        # Python's integers, which do not overflow, take 1 ms for 4,000 rows.
        costs = self.token * tokens.astype(object) + self.pair * squares.astype(object)
        scaled: NDArray[np.int64] = (costs * MOST_COST // (len(tokens) * dearest)).astype(np.int64)
        return scaled


class Balance(NamedTuple):
    """Predicted time of steps over the time with equal batches: the largest over the mean.

    Ranks wait for the slowest in each micro batch, so a step takes the sum of the largest costs.

    Attributes:
        before: with rows in their order.
        after: with rows dealt by their cost.
        bound: what no deal can be below, as the dearest row has to stand somewhere.
        n_batches: global batches that were looked at.
    """

    before: float
    after: float
    bound: float
    n_batches: int


def deal(costs: NDArray[np.int64], world: int, micro_batches: int) -> NDArray[np.int64]:
    """Return which rows of a global batch each rank gets: (micro_batches, world, n), their places.

    Rows of a bin are in the order of the batch. A step is never dearer than with rows in order.

    Args:
        costs: of all rows, from `AttentionCost.of_rows`: (n x world x micro_batches,).
        world: the number of ranks.
        micro_batches: batches of a rank in a step.
    """
    in_order = np.arange(len(costs)).reshape(micro_batches, world, -1)
    bins = _exchanged(costs, _differenced(costs, micro_batches * world))
    bins.sort(axis=1)
    by_cost = np.argsort(-costs[bins].sum(axis=1), kind="stable")
    dealt = bins[by_cost].reshape(in_order.shape)
    totals = np.zeros(world, np.int64)
    for micro_batch in dealt:
        ranks = np.argsort(totals, kind="stable")
        totals[ranks] += costs[micro_batch].sum(axis=1)
        micro_batch[ranks] = micro_batch.copy()
    return dealt if step_cost(costs, dealt) < step_cost(costs, in_order) else in_order


def step_cost(costs: NDArray[np.int64], dealt: NDArray[np.int64]) -> int:
    """Return the cost of a step: the sum of the dearest rank's in each micro batch; see `deal`."""
    return int(costs[dealt].sum(axis=2).max(axis=1).sum())


def least_step_cost(costs: NDArray[np.int64], world: int, micro_batches: int) -> float:
    """Return what no deal costs less than: the mean, or the dearest row with the cheapest ones."""
    n = len(costs) // (world * micro_batches)
    by_cost = np.sort(costs)
    return max(float(costs.sum()) / world, float(by_cost[-1] + by_cost[: n - 1].sum()))


def _differenced(costs: NDArray[np.int64], n_bins: int) -> NDArray[np.int64]:
    """Return rows in bins of equally many, by largest differencing: (n_bins, n), their places."""
    groups = np.argsort(-costs, kind="stable").reshape(-1, n_bins)
    waiting: list[tuple[int, int, NDArray[np.int64], NDArray[np.int64]]] = []
    for number, group in enumerate(groups):
        waiting.append(_group(number, costs[group], group[None]))
    heapq.heapify(waiting)
    for number in range(len(groups), 2 * len(groups) - 1):
        _, _, loads, places = heapq.heappop(waiting)
        _, _, other_loads, other_places = heapq.heappop(waiting)
        merged = loads + other_loads[::-1]
        order = np.argsort(-merged, kind="stable")
        stacked = np.concatenate([places, other_places[:, ::-1]])[:, order]
        heapq.heappush(waiting, _group(number, merged[order], stacked))
    return waiting[0][3].T.copy()


def _group(
    number: int, loads: NDArray[np.int64], places: NDArray[np.int64]
) -> tuple[int, int, NDArray[np.int64], NDArray[np.int64]]:
    """Return an entry of the heap: the group whose bins differ most comes first, then the oldest.

    `loads`: of the bins, falling. `places`: the rows of each bin: (rows, bins).
    """
    return int(loads[-1] - loads[0]), number, loads, places


def _exchanged(costs: NDArray[np.int64], bins: NDArray[np.int64]) -> NDArray[np.int64]:
    """Exchange rows of the dearest bin for those of cheap ones while that helps; return the bins.

    `bins`: (n_bins, n), changed.
    """
    n_bins, n = bins.shape
    loads = costs[bins].sum(axis=1)
    mean = int(loads.sum()) // n_bins
    n_partners = min(n_bins - 1, max(1, COMPARED // (n * n)))
    if not n_partners:
        return bins
    for _ in range(max(1, COMPARED_IN_ALL // (n_partners * n * n))):
        order = np.argsort(loads, kind="stable")
        dearest, partners = order[-1], order[:n_partners]
        if loads[dearest] - mean <= mean // CLOSE:
            break
        moved = costs[bins[dearest]][:, None, None] - costs[bins[partners]]
        after = np.maximum(loads[dearest] - moved, loads[partners][:, None] + moved)
        row, partner, other = np.unravel_index(int(after.argmin()), after.shape)
        if after[row, partner, other] >= loads[dearest]:
            break
        cheap = partners[partner]
        loads[dearest] -= moved[row, partner, other]
        loads[cheap] += moved[row, partner, other]
        kept = bins[dearest, row]
        bins[dearest, row] = bins[cheap, other]
        bins[cheap, other] = kept
    return bins
