"""Figures as text: Markdown tables, aligned so that a terminal shows them well too."""

from __future__ import annotations

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, n_texts: int = 1) -> str:
    """Lay out a Markdown table; the first `n_texts` columns are text, the others are figures."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        aligned = [
            cell.ljust(width) if column < n_texts else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(aligned)} |"

    rules = [
        "-" * (width + 2) if column < n_texts else f"{'-' * (width + 1)}:"
        for column, width in enumerate(widths)
    ]
    return "\n".join([line(head), f"|{'|'.join(rules)}|", *map(line, rows)])


def figure(value: float) -> str:
    """Write a figure with three digits or so."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
