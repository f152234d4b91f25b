"""The tables of a bill and of alternatives: part by part, with formulas on request."""

from __future__ import annotations

import io
import re
from collections.abc import Collection
from typing import Any

import pytest
from rich.console import Console, RenderableType

from tests.bill.text.printed import PLANNED, bill, printed
from tokmill.bill.formula import Bill, Formula
from tokmill.bill.gpus import BARELY, DOES_NOT_FIT, FITS
from tokmill.bill.remedies.comparison import Alternative, Comparison
from tokmill.bill.text import PARTS
from tokmill.bill.text.breakdown import bill_tables
from tokmill.bill.text.comparison import comparison_tables
from tokmill.bill.text.rows import of_bill
from tokmill.bill.text.tables import amounts_table, explanation


def text(
    *wanted: Any, parts: Collection[str] = PARTS, explain: bool = False, **settings: Any
) -> str:
    return printed(bill_tables(bill(*wanted, **settings), parts, explain=explain))


@pytest.mark.parametrize(
    ("part", "titles"),
    [
        ("gpu", ["parameters", "GPU memory at the peak, ", "GPU memory at each moment"]),
        ("host", ["host RAM per node at the peak, ", "host RAM at each moment"]),
        ("disk", ["disk: the dataset", "disk: checkpoints", "disk: optional"]),
        ("time", ["training"]),
        ("inference", ["parameters", "GPU memory, inference: 1 x 1,024 tokens"]),
    ],
)
def test_a_part_has_its_own_tables(part: str, titles: list[str]):
    shown = text(PLANNED, parts=(part,)).split("\n\n")
    found = [block.strip().splitlines()[0] for block in shown]
    heads = [head for head in found if not head.startswith(("shared memory", "host RAM: page"))]
    assert len(heads) == len(titles)
    for head, title in zip(heads, titles, strict=True):
        assert head.startswith(title)


def test_options_that_save_memory_are_shown_with_every_remedy_alone():
    shown = text(gpu="3GiB", micro_batch=16)
    assert re.search(r"^options that save memory +saves +peak$", shown, re.MULTILINE)
    assert re.search(r"^  --checkpointing full +\d", shown, re.MULTILINE)
    assert "options that save memory" not in text(gpu="80GiB")


def test_every_moment_has_its_total_and_one_of_them_is_the_peak():
    found = bill().of_model
    assert found is not None
    shown = text(parts=("gpu",)).partition("GPU memory at each moment of a training step, GiB")[2]
    totals = [float(n) for n in re.findall(r"^  \S.*?  +[\d.]+ +([\d.]+) +[\d.]+$", shown, re.M)]
    assert len(totals) == len(found.training.moments)
    assert max(totals) == round(found.training.peak.n_bytes / 2**30, 2)


@pytest.mark.parametrize("width", [80, 120])
def test_no_table_is_wider_than_the_screen_and_nothing_is_cut(width: int):
    settings = {"gpu": "2GiB", "micro_batch": 64, "loader_workers": 4, "start_method": "spawn"}
    found = bill(PLANNED, **settings)
    shown = printed(bill_tables(found, PARTS, explain=True), width)
    assert max(map(len, shown.splitlines())) <= width
    assert "…" not in shown
    assert found.of_model is not None
    words = " ".join(shown.split())
    for line in found.of_model.training.peak.lines:
        assert f"{line.name} = {line.formula}" in words


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


def lines_of(*renderables: RenderableType, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    for renderable in renderables:
        console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_an_amount_without_bounds_is_one_number_in_the_unit_of_the_total():
    assert lines_of(amounts_table(of_bill("gpu", BILL))) == [
        "GPU memory, step, GiB    low  expected   high",
        "  weights                        10.00",
        "  CUDA context          0.29      0.49   0.98",
        "  total                10.29     10.49  10.98",
    ]


@pytest.mark.parametrize("width", [24, 40, 80, 200])
def test_a_narrow_screen_folds_names_and_cuts_no_number(width):
    shown = lines_of(amounts_table(of_bill("gpu", BILL)), width=width)
    assert all(len(line) <= width for line in shown)
    if width >= 40:
        assert shown[-1].split() == ["total", "10.29", "10.49", "10.98"]


def test_every_amount_is_explained_by_formula_symbols_note_source_and_error():
    assert lines_of(*explanation(BILL.lines)) == [
        "  weights = q * P",
        "    q = 2, P = 5,368,709,120",
        "    source: arithmetic; known error: exact",
        "  CUDA context = 500 * 2 ** 20",
        "    outside [the] allocator",
    ]


GIB = 1 << 30


def an_alternative(*values, gib=1, verdict=FITS, **more):
    return Alternative(values, gib * GIB, 2 * gib * GIB, verdict=verdict, **more)


def compared(found: Comparison) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=80, color_system=None)
    for table in comparison_tables(found):
        console.print(table)
    return [" ".join(line.split()) for line in out.getvalue().splitlines()]


def test_the_verdict_comes_first_and_a_row_has_settings_and_memory():
    found = Comparison(
        ("checkpointing", "micro_batch"),
        (
            an_alternative("none", 8, gib=20, verdict=DOES_NOT_FIT),
            an_alternative("full", 8, gib=10, verdict=BARELY),
            an_alternative("full", 1),
        ),
        "gpt2 on T4",
    )
    assert compared(found) == [
        "verdict fits: full 1; may fit: full 8; does not fit: none 8",
        "gpt2 on T4, GiB",
        "checkpointing micro-batch expected at most fits",
        "none 8 20.00 40.00 no",
        "full 8 10.00 20.00 may",
        "full 1 1.00 2.00 yes",
        "may: the expected amount fits, the upper bound does not",
    ]


def test_what_is_not_possible_says_why():
    rows = (an_alternative("ddp"), Alternative(("zero-3",), why_not="sharding: no"))
    shown = compared(Comparison(("sharding",), rows, "gpt2"))
    assert shown[-2:] == ["zero-3 not possible", "not possible: sharding: no"]
