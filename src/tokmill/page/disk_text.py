"""The disk budget as text: what a dataset takes, by kind, split and source; what more would."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from tokmill.page.bill import (
    amounts_table,
    bill_table,
    explanation,
    indented,
    left_out,
    rows_table,
)
from tokmill.words.units import size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from tokmill.memory.bill import Bill
    from tokmill.memory.disk import DatasetDisk, Share
    from tokmill.page.budgets import Budgets, OnDisk

_MOST_SOURCES = 12
_HEADINGS = ("documents", "tokens", "on disk")


def disk_tables(found: Budgets, *, told: set[str] | None) -> Iterator[RenderableType]:
    """Yield what dataset and checkpoints take, what choices would add, and what is free.

    `told`: formulas that have been explained; None: none is.
    """
    disk = found.disk
    bills: list[Bill] = []
    if disk is not None:
        bills.append(disk.bill)
    if found.of_model is not None:
        bills.append(found.of_model.checkpoints)
    for bill in bills:
        yield Text("")
        yield bill_table(bill, binary=False)
        yield from left_out(bill)
        if told is not None:
            yield from explanation(bill.lines, told)
    if disk is None:
        return
    yield from _room(disk, bills)
    if disk.found is not None:
        yield from _shares(disk.found)
    yield Text("")
    yield amounts_table("disk: what choices would add", found.additions, binary=False)
    if told is not None:
        yield from explanation(found.additions, told)


def _room(disk: OnDisk, bills: list[Bill]) -> Iterator[RenderableType]:
    """Say whether what is still to be written fits: of a finished dataset the checkpoints."""
    done = 0 if disk.found is None else disk.bill.n_bytes
    needed = sum(bill.high_bytes for bill in bills) - done
    free = f"{size(disk.free_bytes)} free in {disk.directory}"
    if needed <= disk.free_bytes:
        yield indented(free)
    else:
        yield indented(f"{free}: TOO LITTLE, {size(needed)} are still to be written", "red")


def _shares(disk: DatasetDisk) -> Iterator[RenderableType]:
    """Give what a finished dataset takes by split and by source, and its ratios."""
    yield Text("")
    yield rows_table("by split", _HEADINGS, map(_row, disk.splits))
    shown = list(map(_row, disk.sources[:_MOST_SOURCES]))
    more = len(disk.sources) - len(shown)
    rest = [(f"and {more:,} more", "", "", "")] if more else []
    yield Text("")
    yield rows_table("by source", _HEADINGS, [*shown, *rest])
    yield Text("")
    yield rows_table("in all", ("",), _facts(disk), words=("",))


def _row(share: Share) -> tuple[str, ...]:
    return (share.name, f"{share.documents:,}", f"{share.tokens:,}", size(share.n_bytes))


def _facts(disk: DatasetDisk) -> Iterator[tuple[str, str]]:
    n_bytes = disk.bill.n_bytes
    yield ("bytes per token", f"{n_bytes / max(1, disk.tokens):.3f} ({disk.dtype})")
    of = {"of the text": disk.text_bytes, "of the input as it is stored": disk.input_bytes}
    for name, whole in of.items():
        if whole:
            yield (name, f"{n_bytes / whole:.1%} of {size(whole)}")
    if disk.unlisted:
        yield ("not in the manifest", ", ".join(disk.unlisted))
