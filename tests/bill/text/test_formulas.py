"""All formulas of the bill and their symbols, as a page and as plain values."""

from __future__ import annotations

import ast
import re

from tokmill.bill.activations.loss import PROBABILITIES
from tokmill.bill.formula import names_in
from tokmill.bill.text.formulas import formulas_json, formulas_page, subjects
from tokmill.bill.text.symbols import SYMBOLS

FORMULAS = [(subject.path, one) for subject in subjects() for one in subject.formulas]
USED = {symbol for _, one in FORMULAS for symbol in names_in(one.expression)}


def test_every_symbol_of_a_formula_has_a_meaning():
    assert USED - set(SYMBOLS) == set()


def test_every_symbol_with_a_meaning_is_used():
    assert set(SYMBOLS) - USED == set()


def test_symbols_are_sorted_and_have_units_of_a_few_kinds():
    assert list(SYMBOLS) == sorted(SYMBOLS)
    assert {unit for _, unit in SYMBOLS.values()} == {
        "", "B", "B per element", "B per token", "B/s", "elements", "tokens", "sequences"
    }  # fmt: skip


def test_every_formula_has_a_source():
    assert [(path, one.name) for path, one in FORMULAS if not one.source.strip()] == []


def test_every_formula_can_be_evaluated():
    for path, one in FORMULAS:
        symbols = dict.fromkeys(names_in(one.expression), 2.0)
        assert one.evaluate(symbols) >= 0, (path, one.name)


def test_a_subject_is_a_module_with_the_formulas_that_it_declares_itself():
    found = {subject.path: subject for subject in subjects()}
    loss = found["bill/activations/loss.py"]
    assert PROBABILITIES in loss.formulas
    assert loss.title.startswith("Logits and loss")
    assert [path for path, one in FORMULAS if one == PROBABILITIES] == [loss.path]
    assert "bill/training_bill.py" not in found  # it imports formulas and declares none


def test_the_page_names_a_source_once_above_neighbours_that_share_it():
    page = formulas_page()
    block = "\n".join([
        "Source: torch's MemTracker on fake tensors, transformers 5.23. Known error:",
        "exact.",
        "",
        "- logits: `q_loss * n * V`",
        "- loss backward: two tensors the size of the logits: `2 * q_loss * n * V`",
    ])  # fmt: skip
    assert block in page
    assert "- `n`: tokens of a micro batch, b * s (tokens)\n" in page


def test_every_formula_stands_on_the_page_and_no_line_is_longer_than_80_characters():
    page = formulas_page()
    assert max(map(len, page.splitlines())) <= 80
    shown = re.findall(r"`([^`]+)`", page.partition("## Symbols")[0].partition("\n## ")[2])
    assert [re.sub(r"\s+", " ", text) for text in shown] == [one.expression for _, one in FORMULAS]


def test_no_line_begins_with_an_operator_that_would_begin_a_list():
    lines = formulas_page().splitlines()
    assert [line for line in lines if re.match(r"\s*[*+] |\s+- ", line)] == []


def test_plain_values_hold_the_same_formulas_with_their_symbols():
    found = formulas_json()
    assert found["schema"] == 1
    listed = [one for subject in found["subjects"] for one in subject["formulas"]]
    assert [one["formula"] for one in listed] == [one.expression for _, one in FORMULAS]
    for one in listed:
        names = {n.id for n in ast.walk(ast.parse(one["formula"])) if isinstance(n, ast.Name)}
        assert set(one["symbols"]) == names - {"min", "max", "ceil"}
    assert found["symbols"]["n"] == {"meaning": "tokens of a micro batch, b * s", "unit": "tokens"}
