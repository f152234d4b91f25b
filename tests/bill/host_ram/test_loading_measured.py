"""The bill of host RAM against what was measured (bench/host_ram.json)."""

from __future__ import annotations

from itertools import product

import pytest

from bench.host_ram import comparisons, show
from tokmill.bill.measuring.loading import Comparison
from tokmill.settings.training import LOADING

MIB = 1 << 20
SMALL, LARGE = 15_000_000, 500_000_000
"""Ids of 30 MB and of 1 GB."""


@pytest.fixture(scope="module")
def stored() -> list[Comparison]:
    return comparisons()


def found_at(stored: list[Comparison], tokens: int) -> dict[tuple[str, str, int], Comparison]:
    return {
        (one.training.loading, one.training.start_method, one.training.loader_workers): one
        for one in stored
        if one.size.tokens == tokens
    }


def test_all_measured_cases_hold_within_five_percent_and_32_mib(
    stored: list[Comparison], capsys: pytest.CaptureFixture[str]
):
    for one in stored:
        if one.measured is not None and not one.holds:
            show(one)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("tokens", [SMALL, LARGE])
def test_every_strategy_has_2_4_and_8_workers_or_says_why_not(
    stored: list[Comparison], tokens: int
):
    found = found_at(stored, tokens)
    expected = set(product(LOADING, ("fork", "spawn"), (2, 4, 8)))
    assert expected - found.keys() == set()
    skipped = {case for case in expected if found[case].measured is None}
    assert {found[case].skipped for case in skipped} <= {"too little memory is free to measure it"}
    assert {loading for loading, _, _ in skipped} <= {"int64", "lists"}
    assert tokens == LARGE or not skipped


def test_cases_measured_after_the_formulas_were_written_are_all_kept(stored: list[Comparison]):
    found = found_at(stored, 100_000_000)
    expected = set(product(LOADING, ("fork", "spawn"), (3, 6)))
    assert expected - found.keys() == set()
    skipped = [case for case in expected if found[case].measured is None]
    assert skipped == [("lists", "spawn", 6)]  # 23 GiB predicted


def test_what_is_measured_lies_between_the_bounds(stored: list[Comparison]):
    for one in stored:
        if one.measured is not None:
            peak, bill = one.measured.peak.committed, one.predicted
            slack = 0.05 * peak + 32 * MIB
            assert bill.low_bytes - slack <= peak <= bill.high_bytes + slack
