"""A comparison of alternatives as a table, the verdict first."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tokmill.bill.gpus import BARELY, FITS
from tokmill.bill.remedies.comparison import Alternative, Comparison
from tokmill.bill.text.rows import VERDICTS
from tokmill.bill.text.tables import plan_text
from tokmill.terminal_tables import indented, labelled, one_line
from tokmill.words import scale

_MOST_NAMED = 4
"""Alternatives that are named in the verdict at most; more are counted."""
_MOST_AXES = 2
"""With more of them, a column of activations would not fit in 80 columns."""


def comparison_tables(comparison: Comparison) -> Iterator[RenderableType]:
    """Yield the verdict, a title, a table with a row for each alternative, and notes."""
    yield labelled([("verdict", _verdict(comparison), ""), *_advice(comparison)])
    possible = [each for each in comparison.alternatives if not each.why_not]
    divisor, unit, digits = scale(max((e.high_bytes for e in possible), default=0), binary=True)
    yield one_line(f"{comparison.title}, {unit}", "bold")
    columns = {"expected": "n_bytes", "at most": "high_bytes"}
    if len(comparison.axes) <= _MOST_AXES and len({each.activation_bytes for each in possible}) > 1:
        columns["activations"] = "activation_bytes"
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in comparison.axes:
        table.add_column(Text(name.replace("_", "-")), overflow="fold")
    for heading in columns:
        table.add_column(Text(heading), justify="right", no_wrap=True, overflow="fold")
    table.add_column(Text("fits"), no_wrap=True)
    for each in comparison.alternatives:
        cells = [f"{getattr(each, name) / divisor:,.{digits}f}" for name in columns.values()]
        if each.why_not:
            cells = [""] * len(cells)
        names = [one_line(str(value)) for value in each.values]
        table.add_row(*names, *cells, _fits(each))
    yield table
    yield from _notes(comparison, activations="activations" in columns)


def _verdict(comparison: Comparison) -> str:
    """Return which alternatives fit, by name or, if they are many, how many."""
    texts = []
    for verdict, said in VERDICTS.items():
        alike = [each for each in comparison.alternatives if each.verdict == verdict]
        names = ", ".join(" ".join(map(str, each.values)) for each in alike)
        if len(comparison.axes) == 1 and names.replace(", ", "").isdecimal():
            names = f"{comparison.axes[0].replace('_', '-')} {names}"
        if alike:
            many = f"{len(alike)} of {len(comparison.alternatives)}"
            texts.append(f"{said.row}: {names if len(alike) <= _MOST_NAMED else many}")
    return "; ".join(texts) or "unknown: add --gpu, such as --gpu=4090"


def _advice(comparison: Comparison) -> Iterator[tuple[str, str, str]]:
    """Yield what makes the alternative fit that misses least, where none does."""
    for each in comparison.alternatives:
        if each.plan:
            label = "fits with" if each.plan[-1].verdict == FITS else "may fit"
            names = " ".join(map(str, each.values))
            yield label, f"{names}: {plan_text(each.plan)}", ""


def _fits(each: Alternative) -> Text:
    if each.why_not:
        return Text("not possible", "dim")
    if not each.verdict:
        return Text("")
    said = VERDICTS[each.verdict]
    return Text(said.cell, said.colour)


def _notes(comparison: Comparison, *, activations: bool) -> Iterator[RenderableType]:
    """Yield the meaning of words, what is missing, and why alternatives are not possible."""
    if any(each.verdict == BARELY for each in comparison.alternatives):
        yield indented("may: the expected amount fits, the upper bound does not", "dim")
    for missing in dict.fromkeys(each.missing for each in comparison.alternatives if each.missing):
        yield indented(f"not included: {missing}", "dim")
    if activations:
        text = "activations: with the logits, at the moment when they are largest"
        yield indented(text, "dim")
    for why_not in dict.fromkeys(filter(None, (each.why_not for each in comparison.alternatives))):
        yield indented(f"not possible: {why_not}", "dim")
