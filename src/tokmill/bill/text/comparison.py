"""A comparison of alternatives as a table."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tokmill.bill.remedies.comparison import Alternative, Comparison
from tokmill.bill.remedies.table import cost
from tokmill.bill.text.tables import indented, one_line
from tokmill.bill.verdict import AT_LEAST, BARELY, DOES_NOT_FIT, FITS
from tokmill.words.units import memory

_VERDICTS = {
    FITS: Text("yes", "green"),
    BARELY: Text("probably", "yellow"),
    DOES_NOT_FIT: Text("no", "red"),
    AT_LEAST: Text("unknown", "yellow"),
}


def comparison_tables(found: Comparison, title: str) -> Iterator[RenderableType]:
    """Yield a title, a table with a row for each alternative, and notes."""
    yield one_line(title, "bold")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in found.axes:
        table.add_column(Text(name.replace("_", "-")), overflow="fold")
    judged = any(each.verdict for each in found.alternatives)
    possible = [each for each in found.alternatives if not each.why_not]
    computed = len({round(each.computation, 2) for each in possible}) > 1
    for heading in ("expected", "at most", *(["compute"] if computed else [])):
        table.add_column(Text(heading), justify="right", no_wrap=True, overflow="fold")
    if judged:
        table.add_column(Text("fits"), no_wrap=True)
    for each in found.alternatives:
        names = [one_line(str(value)) for value in each.values]
        table.add_row(*names, *_cells(each, computed=computed, judged=judged))
    yield table
    yield from _notes(found)


def _cells(each: Alternative, *, computed: bool, judged: bool) -> Iterator[Text]:
    impossible = Text("not possible", "dim")
    yield impossible if each.why_not else Text(memory(each.n_bytes))
    yield Text("" if each.why_not else memory(each.high_bytes))
    if computed:
        yield Text("" if each.why_not else f"x {each.computation:.2f}")
    if judged:
        yield _VERDICTS.get(each.verdict, Text(""))


def _notes(found: Comparison) -> Iterator[RenderableType]:
    """Yield the cost of each value, and why alternatives are not possible, each once."""
    if not any(each.verdict for each in found.alternatives):
        yield indented("add --gpu to see what fits")
    if any(each.verdict == BARELY for each in found.alternatives):
        yield indented("probably: the expected amount fits, the upper bound does not", "dim")
    columns = zip(*(each.values for each in found.alternatives), strict=True)
    for axis, values in zip(found.axes, columns, strict=True):
        named = dict.fromkeys(value for value in values if isinstance(value, str))
        costs = {value: cost({axis: value}) for value in named}
        known = [f"{value}: {text}" for value, text in costs.items() if text != "nothing"]
        if known:
            yield indented(f"{axis.replace('_', '-')}: {'; '.join(known)}", "dim")
    for why_not in dict.fromkeys(filter(None, (each.why_not for each in found.alternatives))):
        yield indented(f"not possible: {why_not}", "dim")
