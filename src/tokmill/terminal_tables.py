"""Tables of names, numbers and texts for the terminal, drawn by rich."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tokmill.words import printable


def rows_table(
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    words: Collection[str] = (),
) -> Table:
    """Return a table of names and texts.

    Columns whose headings are in `words` hold text, which may wrap; the others hold numbers.
    """
    table = empty_table(title, headings, words)
    for name, *texts in rows:
        table.add_row(indented(name), *map(one_line, texts))
    return table


def empty_table(title: str, headings: Sequence[str], words: Collection[str] = ()) -> Table:
    """Return a table without rows; columns whose headings are in `words` hold text."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(Text(title), overflow="fold")
    for name in headings:
        is_figure = name not in words
        justify: Literal["left", "right"] = "right" if is_figure else "left"
        table.add_column(Text(name), justify=justify, no_wrap=is_figure, overflow="fold")
    return table


def labelled(rows: Iterable[tuple[str, str, str]]) -> Table:
    """Return (label, text, style) rows as two columns; long texts wrap inside the second."""
    table = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text, style in rows:
        table.add_row(one_line(label), one_line(text, style))
    return table


def indented(text: str, style: str = "", *, by: int = 2) -> Padding:
    """Return an indented text; if it wraps, all of its lines are indented."""
    return Padding(one_line(text, style), (0, 0, 0, by))


def one_line(text: str, style: str = "") -> Text:
    """Return text whose line breaks and control characters are escaped."""
    return Text(printable(text), style=style)
