"""Which sample comes when, by arithmetic: the order of a source, and the sources of a blend.

The order of a source is a bijection of [0, n) for each seed and epoch, computed, never stored.
A Feistel network permutes the numbers below the next even power of two (at least 2^6, for small n
to be shuffled evenly). A result that is not below n goes through the network again until it is
(cycle walking): so the bijection of the power of two becomes one of [0, n). The idea is that of
Black and Rogaway, "Ciphers with arbitrary finite domains" (2002); Grain's `index_shuffle` does the
same in C++. The order is even, not secret.

    half     = max(3, (bits of n - 1, rounded up to even) / 2)
    key(r)   = mix(mix(mix(mix(seed) ^ stream) ^ epoch) ^ r), r = 0 … 5; mix is splitmix64
    round(r) : left, right = right, left ^ f(right + key(r))
    f(x)     = ((y ^ y >> 32) * 0x94D049BB133111EB) >> (64 - half), y = x * 0xBF58476D1CE4E5B9

All words are uint64. The high half of a position is `left`. docs/loader.md has an example. The
order never changes between versions: what a saved state means depends on it.
"""

from __future__ import annotations

import heapq
from fractions import Fraction
from functools import lru_cache
from math import lcm
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.errors import UsageError
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    Words = NDArray[np.uint64]

ROUNDS = 6
"""Measured: with 4, samples at a fixed distance correlate; with 5, permutations of 7 are uneven."""

LEAST_HALF = 3
"""Measured: with 2, the 120 permutations of 5 samples are uneven even after 8 rounds."""

MOST = 1 << 62
"""The largest n."""

AT_ONCE = 1 << 14
"""Positions that are cheap to ask for together: 10 to 90 ns each, and 0.1 ms for a single one."""

_GAMMA, _A, _B = (
    np.array([word], dtype=np.uint64)  # arrays wrap around; NumPy's scalars warn when they do
    for word in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
_27, _30, _31, _32 = (np.uint64(bits) for bits in (27, 30, 31, 32))


def shuffled(
    positions: ArrayLike, n: int, *, seed: int = 0, epoch: ArrayLike = 0, stream: int = 0
) -> NDArray[np.int64]:
    """Return the indices in [0, n) that stand at `positions` of the order, int64 of their shape.

    Each seed and epoch is another bijection of [0, n). The cost is that of the positions alone:
    on average at most four networks each, more for n below 16.

    Args:
        positions: integers in [0, n), of any shape.
        n: the number of samples, from 1 to 2^62.
        seed: an integer in [0, 2^64).
        epoch: an integer from 0, or an array of them of the same shape as `positions`.
        stream: number of the source in a blend, so that equal sources get different orders.

    Raises:
        UsageError: n or the seed is out of its range.
        IndexError: a position is not in [0, n).
    """
    if not 1 <= n <= MOST:
        raise UsageError(f"order: n is {n}; expected 1 to 2^62")
    if not 0 <= seed < 1 << 64:
        raise UsageError(f"order: seed is {seed}; expected 0 to 2^64 - 1")
    places = np.asarray(positions, dtype=np.int64)
    if places.size and not (places.min() >= 0 and places.max() < n):
        raise IndexError(f"positions {places.min()} to {places.max()}; expected 0 to {n - 1}")
    keys = _keys(seed, stream, np.asarray(epoch, dtype=np.uint64).reshape(-1))
    return _walk(places.astype(np.uint64).reshape(-1), n, keys).reshape(places.shape)


def mix(x: Words) -> Words:
    """Return the outputs of splitmix64 for the states `x`."""
    x = x + _GAMMA
    x = (x ^ x >> _30) * _A
    x = (x ^ x >> _27) * _B
    return x ^ x >> _31


def _keys(seed: int, stream: int, epochs: Words) -> list[Words]:
    """Return the keys of each round: one for all positions, or one for each."""
    of_stream = mix(mix(np.array([seed], dtype=np.uint64)) ^ np.uint64(stream))
    of_epoch = mix(of_stream ^ epochs)
    return [mix(of_epoch ^ np.uint64(number)) for number in range(ROUNDS)]


def _walk(x: Words, n: int, keys: list[Words]) -> NDArray[np.int64]:
    half = max(LEAST_HALF, ((n - 1).bit_length() + 1) // 2)
    x = _network(x, half, keys)
    outside = np.flatnonzero(x >= n)
    while len(outside):
        own = keys if len(keys[0]) == 1 else [key[outside] for key in keys]
        x[outside] = again = _network(x[outside], half, own)
        outside = outside[again >= n]
    return x.view(np.int64)


def _network(x: Words, half: int, keys: list[Words]) -> Words:
    left, right = x >> np.uint64(half), x & np.uint64((1 << half) - 1)
    y, high = np.empty_like(x), np.empty_like(x)
    for key in keys:
        np.add(right, key, out=y)
        y *= _A
        np.right_shift(y, _32, out=high)
        y ^= high
        y *= _B
        y >>= np.uint64(64 - half)
        left ^= y
        left, right = right, left
    return left << np.uint64(half) | right


LONGEST_PERIOD = 1 << 16
"""Shares that need a longer period are rounded to 1/65,536: the table takes 0.4 MiB and 0.2 s."""


_BITS = LONGEST_PERIOD.bit_length()
"""Of a source, and of a number in a period."""


class Blend:
    """Sources with shares, and the source of each sample of their blend.

    Shares are whole numbers out of a period of at most 65,536 samples. One table of a period says
    which source each sample is from; later periods repeat it. A table is a schedule: the j-th
    sample of a source with a of p samples stands from place floor(j p / a) to place
    ceil((j + 1) p / a) - 1. The sample with the earliest end comes first (Liu and Layland 1973;
    Baruah and others, "Proportionate progress", 1996), which always finds a place for all. So at
    every prefix of k samples, each source has had floor(k a / p) or ceil(k a / p).

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

    def counts_before(self, key: int) -> list[int]:
        """Return how many of the samples before `key` each source has."""
        periods, rest = divmod(key, self.period)
        of_rest = np.bincount(self._source[:rest], minlength=len(self.counts)).tolist()
        return [periods * count + own for count, own in zip(self.counts, of_rest, strict=True)]


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
        found = Fraction(str(weight))  # NumPy's integers themselves would overflow in a fraction
    except (ValueError, ZeroDivisionError):
        found = Fraction(0)
    if found <= 0:
        raise UsageError(f"weight of a source: expected a number above 0, found {weight!r}")
    return found


@lru_cache(maxsize=4)
def _table(counts: tuple[int, ...]) -> tuple[NDArray[np.uint16], NDArray[np.int32]]:
    """Return the source of each sample of a period, and its number among those of its source."""
    period = sum(counts)
    samples = []  # a number for each, whose order is that of (end, source, number)
    releases = []
    for source, count in enumerate(counts):
        numbers = np.arange(count, dtype=np.int64)
        releases.append(numbers * period // count)
        ends = -((numbers + 1) * period // -count)
        samples.append((ends << _BITS | source) << _BITS | numbers)
    order = np.argsort(np.concatenate(releases), kind="stable")
    waiting = np.concatenate(samples)[order].tolist()  # by release
    n_released = np.bincount(np.concatenate(releases), minlength=period).tolist()
    ready: list[int] = []
    found = []
    first = 0  # of those that are not released
    for n in n_released:
        for sample in waiting[first : first + n]:
            heapq.heappush(ready, sample)
        first += n
        found.append(heapq.heappop(ready))
    packed = np.array(found, np.int64)
    of_one = (1 << _BITS) - 1
    return (packed >> _BITS & of_one).astype(np.uint16), (packed & of_one).astype(np.int32)
