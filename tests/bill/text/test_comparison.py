from __future__ import annotations

import io

from rich.console import Console

from tokmill.bill.gpus import AT_LEAST, BARELY, DOES_NOT_FIT, FITS
from tokmill.bill.remedies.comparison import Alternative, Comparison
from tokmill.bill.text.comparison import comparison_tables

GIB = 1 << 30


def an_alternative(*values, gib=1, verdict=FITS, **more):
    return Alternative(values, gib * GIB, 2 * gib * GIB, verdict=verdict, **more)


def text(found: Comparison) -> list[str]:
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
    assert text(found) == [
        "verdict fits: full 1; may fit: full 8; does not fit: none 8",
        "gpt2 on T4, GiB",
        "checkpointing micro-batch expected at most fits",
        "none 8 20.00 40.00 no",
        "full 8 10.00 20.00 may",
        "full 1 1.00 2.00 yes",
        "may: the expected amount fits, the upper bound does not",
    ]


def test_many_alternatives_are_counted_and_numbers_have_the_name_of_their_setting():
    rows = [an_alternative(n, verdict=FITS if n < 3 else DOES_NOT_FIT) for n in range(1, 9)]
    found = Comparison(("micro_batch",), tuple(rows), "gpt2")
    assert text(found)[0] == "verdict fits: micro-batch 1, 2; does not fit: 6 of 8"


def test_activations_have_a_column_and_unknown_parts_a_note():
    rows = [
        an_alternative("none", activation_bytes=GIB, verdict=AT_LEAST, missing="DoRA"),
        an_alternative("full", activation_bytes=GIB // 2),
    ]
    shown = text(Comparison(("checkpointing",), tuple(rows), "gpt2"))
    assert shown[0] == "verdict fits: full; a part is not known: none"
    assert shown[2:5] == [
        "checkpointing expected at most activations fits",
        "none 1.00 2.00 1.00 at least",
        "full 1.00 2.00 0.50 yes",
    ]
    assert "not included: DoRA" in shown


def test_what_is_not_possible_says_why():
    rows = (an_alternative("ddp"), Alternative(("zero-3",), why_not="sharding: no"))
    shown = text(Comparison(("sharding",), rows, "gpt2"))
    assert shown[-2:] == ["zero-3 not possible", "not possible: sharding: no"]


def test_without_a_verdict_the_option_is_named():
    found = Comparison(("loss",), (an_alternative("full", verdict=""),), "gpt2")
    assert text(found)[0] == "verdict unknown: add --gpu, such as --gpu=4090"
