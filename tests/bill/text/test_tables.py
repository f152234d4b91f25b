from __future__ import annotations

import io

import pytest
from rich.console import Console, RenderableType

from tokmill.bill.formula import Bill, Formula
from tokmill.bill.text.tables import bill_table, explanation

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


@pytest.mark.parametrize("width", [24, 40, 80, 200])
def test_a_narrow_screen_folds_names_and_cuts_no_number(width):
    shown = text(bill_table(BILL, binary=True), width=width)
    assert all(len(line) <= width for line in shown)
    if width >= 40:
        assert shown[-1].split() == ["total", "10.29", "10.49", "10.98"]


def test_every_amount_is_explained_by_formula_symbols_note_source_and_error():
    assert text(*explanation(BILL.lines)) == [
        "  weights = q * P",
        "    q = 2, P = 5,368,709,120",
        "    source: arithmetic; known error: exact",
        "  CUDA context = 500 * 2 ** 20",
        "    outside [the] allocator",
    ]
