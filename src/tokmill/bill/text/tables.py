"""Tables of a bill for the terminal, and its formulas line by line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tokmill.words.printable import printable
from tokmill.words.units import scale

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from rich.console import RenderableType

    from tokmill.bill.formula import Bill, Line


_BOUNDS = ("low", "expected", "high")
_FINER = 4
"""A table uses a unit from four of it on; otherwise its small lines would all be 0.01."""


def bill_table(bill: Bill, *, binary: bool) -> Table:
    """Return a bill as a table: one line per amount, in the unit of the total, then the total.

    `binary`: units of 1,024 (memory), else of 1,000 (disk). An amount whose bounds equal it is one
    number.
    """
    divisor, unit, digits = scale(bill.high_bytes / _FINER, binary=binary)
    is_sure = bill.low_bytes == bill.high_bytes
    table = _table(f"{bill.title}, {unit}", ("",) if is_sure else _BOUNDS)

    def row(name: str, what: Line | Bill, style: str = "") -> None:
        expected = _amount(what.n_bytes, divisor, digits)
        if is_sure:
            cells = [expected]
        elif what.low_bytes == what.high_bytes:
            cells = ["", expected, ""]
        else:
            low, high = (_amount(n, divisor, digits) for n in (what.low_bytes, what.high_bytes))
            cells = [low, expected, high]
        table.add_row(indented(name), *cells, style=style)

    for line in bill.lines:
        row(line.name, line)
    row("total", bill, "bold")
    return table


def amounts_table(title: str, lines: Sequence[Line], *, binary: bool) -> Table:
    """Return a table of amounts that have no total, such as alternatives."""
    divisor, unit, digits = scale(max((line.n_bytes for line in lines), default=0), binary=binary)
    table = _table(f"{title}, {unit}", ("",))
    for line in lines:
        name = line.name + (f": {line.note}" if line.note else "")
        table.add_row(indented(name), _amount(line.n_bytes, divisor, digits))
    return table


def rows_table(
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    words: Collection[str] = (),
) -> Table:
    """Return a table of names and texts; columns in `words` hold words, the others figures."""
    table = _table(title, headings, words)
    for name, *texts in rows:
        table.add_row(indented(name), *map(one_line, texts))
    return table


def totals_table(title: str, bills: Sequence[tuple[str, Bill]]) -> Table:
    """Return the totals of named bills of one place, in one unit."""
    most = max(bill.high_bytes for _, bill in bills)
    divisor, unit, digits = scale(most / _FINER, binary=True)
    rows = []
    for name, bill in bills:
        bounds = (bill.low_bytes, bill.n_bytes, bill.high_bytes)
        rows.append((name, *(_amount(n, divisor, digits) for n in bounds)))
    return rows_table(f"{title}, {unit}", _BOUNDS, rows)


def bill_view(
    bill: Bill, *, told: set[str] | None, binary: bool = True
) -> Iterator[RenderableType]:
    """Yield an empty line and a bill: its table, costs not included, its formulas."""
    yield Text("")
    yield bill_table(bill, binary=binary)
    if bill.leaves_out:
        yield indented(f"not included: {'; '.join(bill.leaves_out)}", "dim")
    if told is not None:
        yield from explanation(bill.lines, told)


def explanation(lines: Iterable[Line], told: set[str]) -> Iterator[RenderableType]:
    """Yield the formula of each amount, the values of its symbols, its note, source and error.

    Formulas in `told` were shown before and are skipped; formulas shown now are added to it.
    """
    for line in lines:
        symbols = ", ".join(f"{name} = {value:,}" for name, value in line.symbols.items())
        head = f"{line.name} = {line.formula}"
        if f"{head}: {symbols}" in told:
            continue
        told.add(f"{head}: {symbols}")
        yield indented(head)
        sources = {"source": line.source, "known error": line.error}
        known = "; ".join(f"{what}: {text}" for what, text in sources.items() if text)
        for text in filter(None, (symbols, line.note, known)):
            yield indented(text, "dim", by=4)


def labelled(rows: Iterable[tuple[str, str, str]]) -> Table:
    """Return (label, text, style) rows: the texts in a column of their own, wrapped inside it."""
    table = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text, style in rows:
        table.add_row(one_line(label), one_line(text, style))
    return table


def indented(text: str, style: str = "", *, by: int = 2) -> Padding:
    """Return an indented text; lines that it is wrapped into are indented too."""
    return Padding(one_line(text, style), (0, 0, 0, by))


def one_line(text: str, style: str = "") -> Text:
    """Return text without line breaks, whatever names are in it."""
    return Text(printable(text), style=style)


def _table(title: str, headings: Sequence[str], words: Collection[str] = ()) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(Text(title), overflow="fold")
    for name in headings:
        is_figure = name not in words
        justify: Literal["left", "right"] = "right" if is_figure else "left"
        table.add_column(Text(name), justify=justify, no_wrap=is_figure, overflow="fold")
    return table


def _amount(n_bytes: int, divisor: float, digits: int) -> str:
    """Return an amount in the unit of the table; a small one is never shown as 0."""
    least = 10**-digits
    if 0 < n_bytes / divisor < least / 2:
        return f"< {least:.{digits}f}"
    return f"{n_bytes / divisor:,.{digits}f}"
