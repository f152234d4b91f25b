from __future__ import annotations

import io

import pytest
from rich.console import Console, RenderableType

from tokmill.bill.formula import Bill, Formula
from tokmill.bill.text.tables import amounts_table, bill_table, bill_view, explanation, rows_table

WEIGHTS = Formula("weights", "q * P", "arithmetic", "exact")
CONTEXT = Formula("CUDA context", "500 * 2 ** 20", "")
BILL = Bill(
    "GPU memory, step",
    (
        WEIGHTS.line({"q": 2, "P": 5 << 30}),
        CONTEXT.line(
            {}, low_bytes=300 << 20, high_bytes=1000 << 20, note="outside [the] allocator"
        ),
    ),
    ("fp8", "kernels"),
)


def text(*renderables: RenderableType, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    for renderable in renderables:
        console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_an_amount_without_bounds_is_one_number_in_the_unit_of_the_total():
    assert text(bill_table(BILL, binary=True)) == [
        "GPU memory, step, GiB    low  expected   high",
        "  weights                        10.00",
        "  CUDA context          0.29      0.49   0.98",
        "  total                10.29     10.49  10.98",
    ]


def test_bounds_that_say_nothing_more_are_left_out():
    bill = Bill("disk", (WEIGHTS.line({"q": 2, "P": 700}), WEIGHTS.line({"q": 1, "P": 1})))
    assert text(bill_table(bill, binary=False)) == [
        "disk, B",
        "  weights  1,400",
        "  weights      1",
        "  total    1,401",
    ]


def test_what_is_there_never_reads_as_nothing():
    lines = (WEIGHTS.line({"q": 1, "P": 1}), WEIGHTS.line({"q": 1, "P": 9 << 30}))
    shown = text(bill_table(Bill("x", lines), binary=True))
    assert shown[1].split() == ["weights", "<", "0.01"]
    none = text(bill_table(Bill("x", (WEIGHTS.line({"q": 0, "P": 1}),)), binary=True))
    assert none[1].split() == ["weights", "0.0"]


@pytest.mark.parametrize("width", [24, 40, 80, 200])
def test_a_narrow_screen_folds_names_and_cuts_no_number(width):
    shown = text(bill_table(BILL, binary=True), width=width)
    assert all(len(line) <= width for line in shown)
    if width >= 40:
        assert shown[-1].split() == ["total", "10.29", "10.49", "10.98"]


def test_costs_that_are_not_included_stand_below_the_total():
    assert text(*bill_view(BILL, shown=None))[-1] == "  not included: fp8; kernels"
    shown = text(*bill_view(Bill("x", (WEIGHTS.line({"q": 1, "P": 1}),)), shown=None))
    assert shown[-1].startswith("  total ")


def test_every_amount_is_explained_by_formula_symbols_note_source_and_error():
    assert text(*explanation(BILL.lines, set())) == [
        "  weights = q * P",
        "    q = 2, P = 5,368,709,120",
        "    source: arithmetic; known error: exact",
        "  CUDA context = 500 * 2 ** 20",
        "    outside [the] allocator",
    ]


def test_what_has_been_explained_is_not_explained_again():
    shown: set[str] = set()
    assert list(explanation(BILL.lines, shown))
    assert not list(explanation(BILL.lines, shown))
    assert list(explanation([WEIGHTS.line({"q": 4, "P": 1})], shown))


def test_choices_stand_in_a_table_without_a_total():
    lines = (
        WEIGHTS.line({"q": 2, "P": 10_000_000}),
        CONTEXT.line({}, note="at most"),
    )
    assert text(amounts_table("would add", lines, binary=False)) == [
        "would add, MB",
        "  weights                 20.0",
        "  CUDA context: at most  524.3",
    ]
    assert text(amounts_table("would add", (), binary=False)) == ["would add, B"]


def test_rows_of_figures_stand_right_and_rows_of_words_left():
    rows = [("a", "1"), ("b", "1,000")]
    assert text(rows_table("t", ("n",), rows)) == ["t        n", "  a      1", "  b  1,000"]
    assert text(rows_table("t", ("n",), rows, words=("n",))) == ["t    n", "  a  1", "  b  1,000"]
