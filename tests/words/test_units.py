"""Numbers and their words, as people read them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokmill
from tokmill.words import count, counted, memory, plural, seconds, size


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


THINGS = (
    "documents|drops|files|ids|parts|problems|records|rejects|rows|samples|shards|sources|"
    "texts|tokens|turns|messages"
)
BY_HAND = re.compile(rf"\{{(len\([^{{}}]*\)|[\w.]*\bn_\w+)(:,)?\}} ({THINGS})\b")


@pytest.mark.parametrize(("n", "text"), [(0, "0 files"), (1, "1 file"), (1234, "1,234 files")])
def test_one_thing_has_no_s(n: int, text: str) -> None:
    assert plural(n, "file") == text


@pytest.mark.parametrize(
    ("n", "things", "text"),
    [
        (2, "cut samples", "2 cut samples"),
        (1, "cut samples", "1 cut sample"),
        (1, "strings of control tokens kept as text", "1 string of control tokens kept as text"),
        (1, "think and tool_call tags kept as text", "1 think and tool_call tag kept as text"),
        (1, "empty replies (only their end)", "1 empty reply (only their end)"),
        (1, "samples that lose white space", "1 sample that loses white space"),
        (1234, "bytes of text", "1,234 bytes of text"),
        (1, "endless templates", "1 endless template"),
    ],
)
def test_a_counter_named_in_the_plural_is_read_in_the_singular_of_one(
    n: int, things: str, text: str
) -> None:
    assert counted(n, things) == text


def test_no_message_puts_an_s_behind_a_count_by_hand() -> None:
    paths = sorted(Path(tokmill.__file__).parent.rglob("*.py"))
    assert [p.name for p in paths if BY_HAND.search(p.read_text())] == []
