"""Tables of amounts and of text for the terminal, and formulas line by line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table

from tokmill.bill.formula import Bill, Line
from tokmill.bill.gpus import AT_LEAST
from tokmill.bill.remedies.search import Offer
from tokmill.bill.text.rows import Amounts
from tokmill.terminal_tables import empty_table, indented
from tokmill.words import memory, scale

_BOUNDS = ("low", "expected", "high")
_FINER = 4
"""A table uses GiB only from 4 GiB on, and so on: small lines would all be 0.01 otherwise."""


def bounded(bill: Bill) -> str:
    """Return an expected total with the bounds that differ from it: `9.55 GiB (9.01 to 12.31)`."""
    divisor, unit, digits = scale(bill.high_bytes, binary=True)
    amounts = (bill.low_bytes, bill.n_bytes, bill.high_bytes)
    least, expected, most = (f"{n / divisor:,.{digits}f}" for n in amounts)
    bounds = f"{least} to {most}" if least != expected else f"up to {most}"
    return f"{expected} {unit}" + (f" ({bounds})" if least != most else "")


def plan_text(plan: Sequence[Offer]) -> str:
    """Return the options of a plan, the GPU memory with them and, if it grows, the host RAM."""
    last = plan[-1]
    added = " ".join(option for step in plan for option in step.options)
    need = f"{memory(last.peak_bytes)}, up to {memory(last.high_bytes)}"
    if last.verdict == AT_LEAST:
        need = f"at least {memory(last.peak_bytes)}"
    if "offload" in added or "--host-experts" in added:
        host = f"{memory(last.host_bytes)}, up to {memory(last.host_high_bytes)}"
        need = f"GPU {need}; host RAM {host}"
    return f"{added} ({need})"


def explanation(lines: Iterable[Line]) -> Iterator[RenderableType]:
    """Yield the formula of each amount, the values of its symbols, its note, source and error."""
    for line in lines:
        symbols = ", ".join(f"{name} = {value:,}" for name, value in line.symbols.items())
        yield indented(f"{line.name} = {line.formula}")
        sources = {"source": line.source, "known error": line.error}
        known = "; ".join(f"{what}: {text}" for what, text in sources.items() if text)
        for text in filter(None, (symbols, line.note, known)):
            yield indented(text, "dim", by=4)


def amounts_table(amounts: Amounts) -> Table:
    """Return a table of amounts, all in one unit; a bound that equals its amount is left out."""
    rows = [(name, each, "") for name, each in amounts.rows]
    if (total := amounts.total) is not None:
        at_most = sum(line.high_bytes for line in total.lines)
        name = "total" if total.high_bytes == at_most else "total, of all moments"
        rows.append((name, total, "bold"))
    most = max(amount.high_bytes for _, amount, _ in rows)
    divisor, unit, digits = scale(most / _FINER, binary=amounts.binary)
    cells = []
    for _, amount, _ in rows:
        low, expected, high = (
            _amount(n, divisor, digits)
            for n in (amount.low_bytes, amount.n_bytes, amount.high_bytes)
        )
        cells.append((low if low != expected else "", expected, high if high != expected else ""))
    columns = [place for place in range(3) if any(row[place] for row in cells)]
    headings = [_BOUNDS[place] for place in columns] if len(columns) > 1 else [""]
    table = empty_table(f"{amounts.title}, {unit}", headings)
    for (name, _, style), texts in zip(rows, cells, strict=True):
        table.add_row(indented(name), *(texts[place] for place in columns), style=style)
    return table


def _amount(n_bytes: int, divisor: float, digits: int) -> str:
    """Return an amount in the unit of the table; an amount above 0 is never shown as 0."""
    least = 10**-digits
    if 0 < n_bytes / divisor < least / 2:
        return f"< {least:.{digits}f}"
    return f"{n_bytes / divisor:,.{digits}f}"
