"""Figures as text: Markdown tables, aligned so that a terminal shows them well too."""

from __future__ import annotations

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out a Markdown table; the first column is text, the others are figures."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        first = cells[0].ljust(widths[0])
        rest = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
        return f"| {' | '.join([first, *rest])} |"

    rule = f"|{'-' * (widths[0] + 2)}|" + "".join(f"{'-' * (w + 1)}:|" for w in widths[1:])
    return "\n".join([line(head), rule, *map(line, rows)])


def figure(value: float) -> str:
    """Write a figure with three digits or so."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
