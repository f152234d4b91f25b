"""Lines from rows: the expression shown is what is evaluated, equal rows are multiplied."""

from __future__ import annotations

from dataclasses import replace

from tokmill.bill.activations.amounts import kept_lines, rows_line, summed, work_lines
from tokmill.bill.activations.part import Part
from tokmill.bill.formula import Formula, evaluate

WIDE = Formula("wide", "q * d", "here", "exact")
NARROW = Formula("narrow", "4", "there")
GRADIENT = Formula("gradient", "x * d", "here")
SYMBOLS = {"n": 10, "q": 2, "x": 4, "d": 8}
ATTENTION = Part("attention", "attention", (WIDE, NARROW), (WIDE,), (GRADIENT,), 3, shared=NARROW)
MLP = Part("feed-forward", "mlp", (WIDE,), (), (GRADIENT, GRADIENT), 1)


def test_equal_rows_are_multiplied() -> None:
    assert summed((WIDE, NARROW, WIDE)) == "2 * (q * d) + 4"


def test_a_line_is_its_expression_and_names_its_rows() -> None:
    line = rows_line("kept", (WIDE, NARROW, WIDE), SYMBOLS)
    assert line.n_bytes == 10 * (2 * 16 + 4) == evaluate(line.formula, line.symbols)
    assert (line.note, line.source, line.error) == ("2 x wide; narrow", "here, there", "exact")


def test_a_part_that_fewer_layers_have_keeps_less() -> None:
    attention, mlp = kept_lines((ATTENTION, MLP), 6, SYMBOLS)
    assert attention.n_bytes == 10 * 6 * (16 + 4)
    assert mlp.n_bytes == 10 * 2 * 16
    assert attention.name == "activations: attention"


def test_the_first_layer_lacks_rows_that_need_no_gradient() -> None:
    lines = kept_lines((replace(ATTENTION, not_first=(WIDE,)),), 6, SYMBOLS, first=2)
    assert [line.n_bytes for line in lines] == [10 * 6 * 4, 10 * (6 - 2) * 16]


def test_a_layer_in_backward_keeps_earlier_parts_whole_and_its_own_in_part() -> None:
    kept, gradients = work_lines((ATTENTION, MLP), 1, SYMBOLS, recomputed=False)
    assert kept.n_bytes == 10 * (16 + 4)
    assert gradients.n_bytes == 10 * 2 * 32
    kept, _ = work_lines((ATTENTION, MLP), 0, SYMBOLS, recomputed=False)
    assert kept.n_bytes == 10 * 16


def test_a_recomputed_layers_input_is_not_counted_twice() -> None:
    kept, _ = work_lines((ATTENTION, MLP), 1, SYMBOLS, recomputed=True)
    assert kept.n_bytes == 10 * 16
