"""All formulas of the bill and their symbols, as a page and as plain values."""

from __future__ import annotations

import re

import pytest

from tokmill.bill.formula import Formula, evaluate, names_in
from tokmill.bill.text.formulas import SYMBOLS, formulas_page, subjects
from tokmill.errors import TokmillError

FORMULAS = [(subject.module, one) for subject in subjects() for one in subject.formulas]
USED = {symbol for _, one in FORMULAS for symbol in names_in(one.expression)}


def test_every_symbol_of_a_formula_has_a_meaning():
    assert USED - set(SYMBOLS) == set()


def test_every_symbol_with_a_meaning_is_used():
    assert set(SYMBOLS) - USED == set()


def test_every_formula_has_a_source():
    assert [(path, one.name) for path, one in FORMULAS if not one.source.strip()] == []


def test_every_formula_can_be_evaluated():
    for path, one in FORMULAS:
        symbols = dict.fromkeys(names_in(one.expression), 2.0)
        assert one.evaluate(symbols) >= 0, (path, one.name)


def test_every_formula_stands_on_the_page_and_no_line_is_longer_than_80_characters():
    page = formulas_page()
    assert max(map(len, page.splitlines())) <= 80
    shown = re.findall(r"`([^`]+)`", page.partition("## Symbols")[0].partition("\n## ")[2])
    assert [re.sub(r"\s+", " ", text) for text in shown] == [one.expression for _, one in FORMULAS]


CACHE = Formula("KV cache", "2 * L * k * h * s * b * q", "a paper")
LLAMA_2_7B = {"L": 32, "k": 32, "h": 128, "s": 4096, "b": 1, "q": 2}


def test_bounds_never_lie_on_the_wrong_side_of_the_amount():
    line = CACHE.line(LLAMA_2_7B, low_bytes=3 << 30, high_bytes=1 << 30)
    assert (line.low_bytes, line.high_bytes) == (line.n_bytes, line.n_bytes)
    line = CACHE.line(LLAMA_2_7B, low_bytes=1 << 30, high_bytes=3 << 30)
    assert (line.low_bytes, line.high_bytes) == (1 << 30, 3 << 30)


def test_a_symbol_without_a_value_is_named():
    with pytest.raises(TokmillError, match="formula: cannot evaluate y; known: x"):
        evaluate("x + y", {"x": 1})


@pytest.mark.parametrize(
    "expression", ["__import__('os')", "x.real", "[1]", "x if x else 1", "'a'"]
)
def test_nothing_but_arithmetic_is_evaluated(expression):
    with pytest.raises(TokmillError, match="cannot evaluate"):
        evaluate(expression, {"x": 1})
