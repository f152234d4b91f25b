"""docs/memory.md says what the code computes with."""

import pytest

from bench.memory_docs import PAGE, declared, rewritten, used_symbols
from bench.memory_symbols import SYMBOLS
from tokmill.bill.formula import names_in

FORMULAS = [(one.path, formula) for one in declared() for formula in one.formulas]


def test_the_page_is_what_the_program_writes():
    page = PAGE.read_text(encoding="utf-8")
    assert rewritten(page) == page, "run python -m bench.memory_docs"


def test_a_page_without_a_block_is_refused():
    page = PAGE.read_text(encoding="utf-8").replace("<!-- symbols: begin -->", "")
    with pytest.raises(
        ValueError, match="expected the blocks formulas, symbols, schemes, grid, host, found"
    ):
        rewritten(page)


def test_what_stands_outside_of_the_blocks_is_kept():
    page = rewritten(PAGE.read_text(encoding="utf-8"))
    assert rewritten(f"before {page} after") == f"before {page} after"


def test_every_symbol_of_a_formula_has_a_meaning():
    assert {s: names for s, names in used_symbols().items() if s not in SYMBOLS} == {}


def test_every_symbol_with_a_meaning_is_used():
    used = used_symbols()
    assert [symbol for symbol in SYMBOLS if symbol not in used] == []


def test_symbols_are_sorted():
    assert list(SYMBOLS) == sorted(SYMBOLS)


def test_every_formula_has_a_source():
    assert [(path, formula.name) for path, formula in FORMULAS if not formula.source.strip()] == []


def test_every_formula_can_be_evaluated():
    for path, formula in FORMULAS:
        symbols = dict.fromkeys(names_in(formula.expression), 2.0)
        assert formula.evaluate(symbols) >= 0, (path, formula.name)
