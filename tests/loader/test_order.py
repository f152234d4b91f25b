"""The order is a permutation for every n, looks like a shuffle, and never changes."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tokmill.errors import UsageError
from tokmill.loader import shuffled
from tokmill.loader.order import MOST

MASK = (1 << 64) - 1


def deviations(observed: NDArray[np.int64], expected: float) -> float:
    """Return chi-square less its mean, in standard deviations."""
    degrees = observed.size - 1
    chi_square = float(((observed - expected) ** 2).sum()) / expected
    return (chi_square - degrees) / (2 * degrees) ** 0.5


def of_scalars(position: int, n: int, seed: int, epoch: int, stream: int = 0) -> int:
    """Return what the docstring of the module says, in Python's integers."""

    def mix(x: int) -> int:
        x = (x + 0x9E3779B97F4A7C15) & MASK
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
        x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
        return x ^ x >> 31

    half = max(3, -((n - 1).bit_length() // -2))
    x = position
    while True:
        left, right = x >> half, x & ((1 << half) - 1)
        for number in range(6):
            key = mix(mix(mix(mix(seed) ^ stream) ^ epoch) ^ number)
            y = (right + key) * 0xBF58476D1CE4E5B9 & MASK
            y = ((y ^ y >> 32) * 0x94D049BB133111EB & MASK) >> (64 - half)
            left, right = right, left ^ y
        x = left << half | right
        if x < n:
            return x


def test_every_n_up_to_2000_is_a_permutation() -> None:
    for n in range(1, 2001):
        found = shuffled(np.arange(n), n, seed=n, epoch=n % 3)
        assert np.bincount(found, minlength=n).tolist() == [1] * n, n


@pytest.mark.parametrize("bits", [31, 32, 33, 47, 48, 61, 62])
def test_samples_of_a_large_n_are_distinct_and_in_range(bits: int) -> None:
    for n in ((1 << bits) - 1, 1 << bits, (1 << bits) + 1):
        if n > MOST:
            continue
        ends = [np.arange(50_000), n - 1 - np.arange(50_000), n // 2 + np.arange(50_000)]
        found = shuffled(np.concatenate(ends), n, seed=bits)
        assert found.min() >= 0
        assert found.max() < n
        assert len(np.unique(found)) == 150_000


def test_the_order_is_the_one_in_the_documentation() -> None:
    of_ten = [5, 2, 9, 7, 8, 0, 1, 6, 4, 3]
    assert shuffled(np.arange(10), 10).tolist() == of_ten
    assert shuffled(np.arange(10), 10, seed=0, epoch=0, stream=0).tolist() == of_ten
    assert shuffled(np.arange(10), 10, seed=0, epoch=1).tolist() == [7, 1, 5, 8, 2, 6, 4, 3, 0, 9]
    assert shuffled([0, 1, 10**12 - 1], 10**12, seed=42, epoch=3).tolist() == [
        119899347349,
        893065369956,
        679086109546,
    ]
    assert shuffled([0, (1 << 62) - 1], 1 << 62, seed=MASK, epoch=5, stream=2).tolist() == [
        1863007082353809597,
        2598443453045145142,
    ]


@pytest.mark.parametrize("n", [1, 2, 7, 63, 64, 65, 1000, 10**6 + 3, 10**12, 1 << 62])
def test_the_order_is_what_its_description_says(n: int) -> None:
    positions = sorted({0, n // 3, n - 1})
    found = shuffled(positions, n, seed=MASK, epoch=9, stream=4)
    assert found.tolist() == [of_scalars(one, n, MASK, 9, 4) for one in positions]


def test_each_position_may_be_of_an_epoch_of_its_own() -> None:
    positions, epochs = np.arange(30).reshape(5, 6) % 10, np.arange(30).reshape(5, 6) // 7
    found = shuffled(positions, 10, seed=3, epoch=epochs)
    assert found.shape == (5, 6)
    pairs = zip(positions.ravel().tolist(), epochs.ravel().tolist(), strict=True)
    assert found.ravel().tolist() == [of_scalars(one, 10, 3, epoch) for one, epoch in pairs]


@pytest.mark.parametrize("n", [1000, 65_536, 65_537, 1_000_000])
@pytest.mark.parametrize("seed", range(2))
def test_neighbours_in_the_order_do_not_correlate(n: int, seed: int) -> None:
    found = shuffled(np.arange(n), n, seed=seed)
    centred = found - (n - 1) / 2
    variance = float((centred * centred).sum())
    for lag in (1, 2, 3, 16, 64, 256, 512):  # a correlation is normal with a deviation of n^-1/2
        correlation = float((centred[lag:] * centred[:-lag]).sum()) / variance
        assert abs(correlation) * n**0.5 < 4, lag
    steps = np.bincount(np.diff(found) % n * 100 // n, minlength=100)
    assert abs(deviations(steps, (n - 1) / 100)) < 4
    assert np.count_nonzero(found == np.arange(n)) <= 6  # of a mean of 1


def test_seeds_epochs_and_streams_give_other_orders() -> None:
    n = 100_000
    orders = [
        shuffled(np.arange(n), n, seed=seed, epoch=epoch, stream=stream)
        for seed, epoch, stream in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1))
    ]
    for number, one in enumerate(orders):
        for other in orders[:number]:
            assert np.count_nonzero(one == other) <= 8  # of a mean of 1
            assert abs(np.corrcoef(one, other)[0, 1]) * n**0.5 < 4


def test_what_is_out_of_range_is_refused() -> None:
    for n in (0, (1 << 62) + 1):
        with pytest.raises(UsageError, match=f"^order: n is {n}; expected 1 to 2\\^62$"):
            shuffled([], n)
    for seed in (-1, 1 << 64):
        expected = f"^order: seed is {seed}; expected 0 to 2\\^64 - 1$"
        with pytest.raises(UsageError, match=expected):
            shuffled([0], 5, seed=seed)
    for wrong, found in (([5], "5 to 5"), ([-1, 3], "-1 to 3"), ([0, 7], "0 to 7")):
        with pytest.raises(IndexError, match=f"^positions {found}; expected 0 to 4$"):
            shuffled(wrong, 5)
