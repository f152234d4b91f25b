from __future__ import annotations

import io

from rich.console import Console

from tokmill.bill.remedies.comparison import Alternative, Comparison
from tokmill.bill.text.comparison import comparison_tables
from tokmill.bill.verdict import BARELY, DOES_NOT_FIT, FITS

GIB = 1 << 30


def an_alternative(*values, gib=1, verdict=FITS, computation=1.0):
    return Alternative(values, gib * GIB, 0, 2 * gib * GIB, verdict, computation)


def text(found: Comparison) -> list[str]:
    """Return the lines under the title."""
    out = io.StringIO()
    console = Console(file=out, width=100, color_system=None)
    for table in comparison_tables(found, "gpt2 on T4"):
        console.print(table)
    title, *lines = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert title == "gpt2 on T4"
    return lines


def test_a_row_has_settings_memory_verdict_and_computation():
    found = Comparison(
        ("checkpointing", "micro_batch"),
        (
            an_alternative("none", 8, gib=20, verdict=DOES_NOT_FIT),
            an_alternative("full", 8, gib=10, verdict=BARELY, computation=1.31),
            an_alternative("full", 1),
        ),
    )
    assert text(found) == [
        "checkpointing micro-batch expected at most compute fits",
        "none 8 20.00 GiB 40.00 GiB x 1.00 no",
        "full 8 10.00 GiB 20.00 GiB x 1.31 probably",
        "full 1 1.00 GiB 2.00 GiB x 1.00 yes",
        "probably: the expected amount fits, the upper bound does not",
        "checkpointing: full: a third more computation",
    ]


def test_without_a_verdict_the_option_is_named():
    found = Comparison(("loss",), (an_alternative("full", verdict=""),))
    shown = text(found)
    assert shown[0] == "loss expected at most"
    assert shown[-1] == "add --gpu to see what fits"
