from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.words.units import count, memory, scale, seconds, size


@pytest.mark.parametrize(
    ("n_bytes", "expected"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (12_345, "12.3 kB"),
        (999_500, "1 MB"),
        (2_500_000_000_000, "2.5 TB"),
        (999_999_999_999, "1 TB"),
        (2_345_000_000_000_000, "2,345 TB"),
    ],
)
def test_a_size_has_three_figures_and_a_unit(n_bytes, expected):
    assert size(n_bytes) == expected


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (12_345, "12,345"),
        (9_999_999, "9,999,999"),
        (10_000_000, "10 million"),
        (999_999_999, "1 billion"),
        (1_394_000_000, "1.39 billion"),
        (15_100_000_000_000, "15.1 trillion"),
        (2_345_000_000_000_000, "2,345 trillion"),
    ],
)
def test_a_count_is_exact_while_it_is_short(n, expected):
    assert count(n) == expected


@pytest.mark.parametrize(
    ("s", "expected"),
    [
        (1.26, "1.3 s"),
        (59.9, "59.9 s"),
        (61.9, "1 min 01 s"),
        (3599, "1 h 00 min"),
        (7500, "2 h 05 min"),
        (172_740, "47 h 59 min"),
        (172_800, "2 days 00 h"),
    ],
)
def test_a_duration_has_the_two_units_that_matter(s, expected):
    assert seconds(s) == expected


@given(st.integers(0, 10**18))
def test_no_number_is_shown_with_an_exponent(n):
    assert "e" not in size(n)
    assert "e+" not in count(n)
    assert "e" not in seconds(n)


@pytest.mark.parametrize(
    ("n_bytes", "expected"),
    [
        (0, "0.0 MiB"),
        ((1 << 30) - 1, "1,024.0 MiB"),
        (1 << 30, "1.00 GiB"),
        (25 * 10**9, "23.28 GiB"),
        (5 << 50, "5,242,880.00 GiB"),
    ],
)
def test_memory_is_in_powers_of_1024(n_bytes, expected):
    assert memory(n_bytes) == expected


def test_a_column_has_the_unit_of_its_largest_amount():
    assert scale(999, binary=False) == (1.0, "B", 0)
    assert scale(1000, binary=False) == (1000.0, "kB", 1)
    assert scale(10**15, binary=False) == (1e12, "TB", 2)
    assert scale((1 << 30) - 1, binary=True) == (1 << 20, "MiB", 1)
    assert scale(1 << 30, binary=True) == (1 << 30, "GiB", 2)
