"""Shares of a blend: the source of any sample, and its number within the source, by arithmetic.

Shares are whole numbers out of a period of at most 65,536 samples. One table of a period says which
source each sample is from; later periods repeat it. A table is a schedule: the j-th sample of a
source with a of p samples stands from place floor(j p / a) to place ceil((j + 1) p / a) - 1. The
sample with the earliest end comes first (Liu and Layland 1973; Baruah and others, "Proportionate
progress", 1996), which always finds a place for all. So at every prefix of k samples, each source
has had floor(k a / p) or ceil(k a / p).
"""

from __future__ import annotations

import heapq
from fractions import Fraction
from functools import lru_cache
from math import lcm
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.errors import UsageError
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

LONGEST_PERIOD = 1 << 16
"""Shares that need a longer period are rounded to 1/65,536: the table takes 0.4 MiB and 0.2 s."""


class Blend:
    """Sources with shares, and the source of each sample of their blend.

    Attributes:
        counts: samples of each source in a period; their sum is the period.
    """

    def __init__(self, weights: Sequence[Any]) -> None:
        self.counts = period_counts(weights)
        self.period = sum(self.counts)
        self._source, self._number = _table(self.counts)

    def place(self, keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the source of each sample, and how many of that source came before it: int64.

        Args:
            keys: numbers of samples of the blend, from 0: (n,) int64.
        """
        periods, places = np.divmod(keys, self.period)
        source = self._source[places].astype(np.int64)
        counts = np.array(self.counts, dtype=np.int64)
        return source, periods * counts[source] + self._number[places]


def period_counts(weights: Sequence[Any]) -> tuple[int, ...]:
    """Return the samples of each source in the shortest period that has the shares of `weights`.

    A float is the decimal that it is written as: 0.7 and 0.3 are 7 and 3 of 10. If the period is
    longer than `LONGEST_PERIOD`, shares are rounded to it, and no source gets none.

    Raises:
        UsageError: a weight is no number above 0, or there are too many sources.
    """
    if not 1 <= len(weights) <= LONGEST_PERIOD // 2:
        raise UsageError(f"blend of {plural(len(weights), 'source')}: expected 1 to 32,768")
    exact = [_fraction(weight) for weight in weights]
    total = sum(exact)
    shares = [one / total for one in exact]
    period = lcm(*(one.denominator for one in shares))
    if period <= LONGEST_PERIOD:
        return tuple(int(one * period) for one in shares)
    spare = LONGEST_PERIOD - len(shares)  # each source has one sample before the rest is shared
    wanted = [max(Fraction(0), one * LONGEST_PERIOD - 1) for one in shares]
    scale = Fraction(spare) / sum(wanted)
    counts = [int(one * scale) for one in wanted]
    by_rest = sorted(range(len(counts)), key=lambda i: counts[i] - wanted[i] * scale)
    for i in by_rest[: spare - sum(counts)]:
        counts[i] += 1
    return tuple(count + 1 for count in counts)


def _fraction(weight: Any) -> Fraction:
    try:
        if isinstance(weight, np.integer):
            weight = int(weight)  # NumPy's integers stay inside a fraction, and overflow there
        found = Fraction(str(weight) if isinstance(weight, float | np.floating) else weight)
    except (TypeError, ValueError, ArithmeticError):
        found = Fraction(0)
    if found <= 0:
        raise UsageError(f"weight of a source: expected a number above 0, found {weight!r}")
    return found


@lru_cache(maxsize=4)
def _table(counts: tuple[int, ...]) -> tuple[NDArray[np.uint16], NDArray[np.int32]]:
    """Return the source of each sample of a period, and its number among those of its source."""
    period = sum(counts)
    released: list[list[int]] = [[] for _ in range(period)]  # sources with a sample from here on
    for source, count in enumerate(counts):
        for number in range(count):
            released[number * period // count].append(source)
    sources, numbers = np.empty(period, np.uint16), np.empty(period, np.int32)
    next_number = [0] * len(counts)  # of the next sample of the source to be released
    ready: list[tuple[int, int, int]] = []
    for place in range(period):
        for source in released[place]:
            number = next_number[source]
            next_number[source] += 1
            end = -((number + 1) * period // -counts[source])
            heapq.heappush(ready, (end, source, number))
        _, sources[place], numbers[place] = heapq.heappop(ready)
    return sources, numbers
