"""How long documents are, class by class, against the context of training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.page.bill import rows_table
from tokmill.words.units import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table

_BAR = 30
"""Characters of the greatest class."""


def lengths_table(histogram: Sequence[int], context: int, *, what: str) -> Table:
    """Give the classes of a length histogram, each with a bar, and on which side of `context`.

    `histogram[i]` counts documents of 2^i to 2^(i+1) - 1 tokens; classes without any before the
    first and behind the last are left out. `what` names the documents.
    """
    headings = (what, "share", "", f"{context:,} tokens")
    rows = _rows(histogram, context)
    return rows_table(f"lengths of {what}, tokens", headings, rows, words=headings[2:])


def _rows(histogram: Sequence[int], context: int) -> Iterator[tuple[str, ...]]:
    total, most = sum(histogram), max(histogram, default=0)
    held = [i for i, n in enumerate(histogram) if n]
    for i in range(held[0], held[-1] + 1) if held else ():
        low, high, n = 1 << i, (2 << i) - 1, histogram[i]
        span = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        side = "fit" if high <= context else "too long" if low > context else "some fit"
        yield span, count(n), f"{n / total:.1%}", "#" * round(_BAR * n / most), side
