"""Amounts with units, in settings from every source."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.errors import UsageError
from tokmill.settings.declare import UNITS, parse_quantity
from tokmill.settings.load import build_config
from tokmill.settings.training import TrainingSettings


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("32k", "context", 32_768),
        ("1M", "context", 1 << 20),
        ("1.5k", "context", 1536),
        ("4096", "context", 4096),
        ("300B", "count", 300 * 10**9),
        ("1.4 T", "count", 1_400_000_000_000),
        ("0.000000001T", "count", 1000),
        ("512GiB", "bytes", 512 << 30),
        ("100GB", "bytes", 10**11),
        ("900GB/s", "bytes/s", 900 * 10**9),
        (" 7 ", "bytes", 7),
        ("8 mib", "bytes", 8 << 20),
        ("1.5kB", "bytes", 1500),
    ],
)
def test_k_is_1024_of_a_context_and_1000_of_a_count(text, unit, expected):
    assert parse_quantity(text, unit, "x") == expected


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("32KB", "context", "a number of tokens such as 4096 or 32k (32,768)"),
        ("300 tokens", "count", "a number such as 7.5B or 300M"),
        ("1e9", "count", "a number such as 7.5B or 300M"),
        ("1.5", "bytes", "a size such as 8MiB or 1GB"),
        *(
            (text, "bytes", "a size such as 8MiB or 1GB")
            for text in ("MiB", "1 PB", "1,000", "0x10")
        ),
        ("-1B", "count", "a number such as 7.5B"),
        ("", "count", "a number such as 7.5B"),
        ("9" * 400 + "B", "count", "a number such as 7.5B"),
    ],
)
def test_what_is_no_amount_is_refused_with_an_example(text, unit, expected):
    with pytest.raises(UsageError) as caught:
        parse_quantity(text, unit, "--tokens")
    assert str(caught.value).startswith(f"--tokens: expected {expected}")
    assert str(caught.value).endswith(f"found {text!r}")


@given(st.integers(0, 10**30 - 1), st.sampled_from(sorted(UNITS)))
def test_a_plain_number_is_itself_in_every_unit(n, unit):
    assert parse_quantity(str(n), unit, "x") == n


@given(st.integers(0, 10**9), st.integers(0, 10**9 - 1))
def test_no_digit_of_a_decimal_number_is_lost(whole, decimals):
    text = f"{whole}.{decimals:09d}B"
    assert parse_quantity(text, "count", "x") == whole * 10**9 + decimals


def test_a_limit_is_checked_after_the_unit():
    with pytest.raises(UsageError, match="found 1099511627776"):
        build_config({"training": {"sequence": "1048576M"}}, where="x")


def test_units_are_explained_in_the_help():
    for setting in dataclasses.fields(TrainingSettings):
        unit = setting.metadata.get("unit")
        assert UNITS[unit].help in setting.metadata["help"] if unit else True
