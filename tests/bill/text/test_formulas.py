"""All formulas of the bill and their symbols, as a page and as plain values."""

from __future__ import annotations

import re

from tokmill.bill.formula import names_in
from tokmill.bill.text.formulas import formulas_page, subjects
from tokmill.bill.text.symbols import SYMBOLS

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
