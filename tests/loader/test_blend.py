"""Shares of a blend hold at every prefix, and any sample of it is found by arithmetic."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokmill.errors import UsageError
from tokmill.loader.order import LONGEST_PERIOD, Blend, period_counts


@pytest.mark.parametrize(
    ("weights", "counts"),
    [
        ([1], (1,)),
        ([0.7, 0.3], (7, 3)),
        ([7, 3], (7, 3)),
        ([14, 6], (7, 3)),
        ([0.1, 0.2, 0.7], (1, 2, 7)),
        ([Fraction(1, 3), Fraction(2, 3)], (1, 2)),
        ([Decimal("0.25"), 0.75], (1, 3)),
        ([np.float32(0.5), np.int64(1)], (1, 2)),
        ([60_000_000_000, 20_000_000_000], (3, 1)),
        (np.array([6, 3]) * 10**18, (2, 1)),
        (np.array([200, 100], np.uint8), (2, 1)),
    ],
)
def test_weights_are_the_shortest_period_of_their_shares(weights, counts) -> None:
    assert period_counts(weights) == counts


@pytest.mark.parametrize(
    "weights",
    [
        [60_000_000_001, 13_700_000_003, 11],
        [1 / 3, 0.7],
        [1.0, 1e-12],
        [1e-9] * 7 + [0.123456789],
    ],
)
def test_shares_of_a_longer_period_are_rounded(weights: list[float]) -> None:
    counts = period_counts(weights)
    assert sum(counts) == LONGEST_PERIOD
    for weight, count in zip(weights, counts, strict=True):
        assert count >= 1
        assert abs(count - weight / sum(weights) * LONGEST_PERIOD) < len(weights) + 1


def test_the_order_of_sources_never_changes_between_versions() -> None:
    source, number = Blend([0.5, 0.3, 0.2]).place(np.arange(12))
    assert source.tolist() == [0, 1, 0, 2, 0, 1, 0, 1, 0, 2, 0, 1]
    assert number.tolist() == [0, 0, 1, 0, 2, 1, 3, 2, 4, 1, 5, 3]
    assert period_counts([65_535, 1]) == (65_535, 1)
    assert period_counts([1 / 3, 0.7, 1e-7]) == (21_140, 44_395, 1)
    assert period_counts([0.1, 0.77777777, 0.4]) == (5129, 39_891, 20_516)
    assert period_counts([0.123456789, 1, 1, 1e-9]) == (3810, 30_863, 30_862, 1)


@pytest.mark.parametrize("n", [0, 32_769])
def test_a_blend_has_1_to_32768_sources(n: int) -> None:
    with pytest.raises(UsageError, match=f"^blend of {n:,} sources: expected 1 to 32,768$"):
        period_counts([1] * n)
    assert period_counts([1] * 32_768) == (1,) * 32_768


def check_shares(weights: list[int], n: int) -> None:
    blend = Blend(weights)
    source, number = blend.place(np.arange(n))
    for one, weight in enumerate(weights):
        own = source == one
        assert number[own].tolist() == list(range(int(own.sum())))
        seen, k = np.cumsum(own), np.arange(1, n + 1)
        assert (seen >= k * weight // sum(weights)).all()
        assert (seen <= -(k * weight // -sum(weights))).all()
    for key in (0, 1, n // 2, n):
        assert (
            blend.counts_before(key) == np.bincount(source[:key], minlength=len(weights)).tolist()
        )


@given(st.lists(st.integers(1, 60), min_size=1, max_size=12))
@settings(max_examples=200, deadline=None)
def test_each_source_has_its_share_at_every_prefix(weights: list[int]) -> None:
    check_shares(weights, 3 * sum(weights) + 1)


@pytest.mark.parametrize("weights", [[65_535, 1], [21_845, 21_845, 21_846], [1] * 300])
def test_shares_hold_in_long_periods_and_of_many_sources(weights: list[int]) -> None:
    check_shares(weights, LONGEST_PERIOD + 1)


@pytest.mark.parametrize(
    "weight",
    [0, -1, float("nan"), float("inf"), Decimal("inf"), Decimal("nan"), "1/0", "x", None, True],
)
def test_a_weight_that_is_no_share_is_refused(weight: object) -> None:
    with pytest.raises(UsageError) as caught:
        period_counts([1, weight])
    expected = f"weight of a source: expected a number above 0, found {weight!r}"
    assert str(caught.value) == expected
