"""Disk use as tables: a dataset by kind, split and source, its lengths, and optional files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from tokmill.bill.text.tables import amounts_table, bill_view, explanation, rows_table
from tokmill.words.units import count, size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from tokmill.bill.disk_files import DatasetDisk, Share
    from tokmill.bill.full_bill import FullBill

_MOST_SOURCES = 12
_BAR = 20
"""Characters of the longest bar."""

_HEADINGS = ("documents", "tokens", "on disk")


def disk_tables(found: FullBill, *, told: set[str] | None) -> Iterator[RenderableType]:
    """Yield the sizes of dataset and checkpoints, and those of optional files.

    `told`: formulas that were shown already; None: formulas are not shown.
    """
    disk = found.disk
    bills = [] if disk is None else [disk.bill]
    if found.of_model is not None:
        bills.append(found.of_model.checkpoints)
    for bill in bills:
        yield from bill_view(bill, told=told, binary=False)
    if disk is None:
        return
    if disk.found is not None:
        yield from _shares(disk.found)
    yield Text("")
    yield amounts_table("disk: optional files", found.additions, binary=False)
    if told is not None:
        yield from explanation(found.additions, told)


def _shares(disk: DatasetDisk) -> Iterator[RenderableType]:
    """Yield the size of a finished dataset by split and by source, and its ratios."""
    yield Text("")
    yield rows_table("by split", _HEADINGS, map(_row, disk.splits))
    shown = list(map(_row, disk.sources[:_MOST_SOURCES]))
    more = len(disk.sources) - len(shown)
    rest = [(f"and {more:,} more", "", "", "")] if more else []
    yield Text("")
    yield rows_table("by source", _HEADINGS, [*shown, *rest])
    yield Text("")
    yield rows_table("totals", ("",), _facts(disk), words=("",))


def _row(share: Share) -> tuple[str, ...]:
    return (share.name, f"{share.documents:,}", f"{share.tokens:,}", size(share.n_bytes))


def _facts(disk: DatasetDisk) -> Iterator[tuple[str, str]]:
    n_bytes = disk.bill.n_bytes
    yield ("bytes per token", f"{n_bytes / max(1, disk.tokens):.3f} ({disk.dtype})")
    of = {"size relative to the text": disk.text_bytes, "relative to the input": disk.input_bytes}
    for name, total in of.items():
        if total:
            yield (name, f"{n_bytes / total:.1%} of {size(total)}")
    if disk.unlisted:
        yield ("files not in the manifest", ", ".join(disk.unlisted))


def lengths_table(histogram: Sequence[int], context: int, *, what: str) -> Table:
    """Return a table of a length histogram: share, bar, and whether documents fit in `context`.

    `histogram[i]` counts documents of 2^i to 2^(i+1) - 1 tokens; empty classes before the first
    and after the last are left out. `what` names the documents.
    """
    headings = (what, "share", "", f"{context:,} tokens")
    rows = _length_rows(histogram, context)
    return rows_table("lengths, tokens", headings, rows, words=headings[2:])


def _length_rows(histogram: Sequence[int], context: int) -> Iterator[tuple[str, ...]]:
    total, most = sum(histogram), max(histogram, default=0)
    held = [i for i, n in enumerate(histogram) if n]
    for i in range(held[0], held[-1] + 1) if held else ():
        low, high, n = 1 << i, (2 << i) - 1, histogram[i]
        span = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        side = "fit" if high <= context else "too long" if low > context else "some fit"
        yield span, count(n), f"{n / total:.1%}", "#" * round(_BAR * n / most), side
