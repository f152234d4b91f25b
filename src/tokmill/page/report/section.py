"""A section of the page, and the pieces that sections share: facts, tables, notes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tokmill.page.markup import label

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tokmill.page.summary import Rows


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the page.

    Attributes:
        id: its anchor; letters only.
        title: its heading, as text.
        html: its body; everything in it that comes from the dataset is escaped.
        data: plain values with the numbers that it shows; the page has them as JSON, by `id`.
        menu: its name in the list of contents; '' for the title.
    """

    id: str
    title: str
    html: str
    data: dict[str, Any] = field(default_factory=dict)
    menu: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table: its text, and the number that it writes, if it is one."""

    text: str
    value: float | None = None


def table(head: Sequence[str], rows: Iterable[Sequence[str | Cell]], caption: str = "") -> str:
    """Return a table inside a box that scrolls on narrow screens; the first column has names."""
    heads = "".join(
        f'<th scope="col"{"" if at == 0 else " class=n"}>{label(name)}</th>'
        for at, name in enumerate(head)
    )
    body = "".join(f"<tr>{_name(row[0])}{''.join(map(_cell, row[1:]))}</tr>" for row in rows)
    named = f"<caption>{label(caption)}</caption>" if caption else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label(caption or head[0])}">'
        f"<table>{named}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _name(cell: str | Cell) -> str:
    text = cell if isinstance(cell, str) else cell.text
    return f'<th scope="row">{label(text, _LONGEST_NAME)}</th>'


def _cell(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return f"<td>{label(cell, _LONGEST_TEXT)}</td>"
    value = "" if cell.value is None else f' data-value="{cell.value}"'
    return f'<td class="n"{value}>{label(cell.text)}</td>'


_LONGEST_NAME, _LONGEST_TEXT = 120, 400
"""Columns of names and texts that a page shows; the middle of longer ones is left out."""


def facts(rows: Rows, kind: str = "facts") -> str:
    """Return (name, text) rows as a list of definitions; a text may have several lines."""
    items = "".join(
        f"<div><dt>{label(name)}</dt><dd>{'<br>'.join(_lines(text))}</dd></div>"
        for name, text in rows
    )
    return f'<dl class="{kind}">{items}</dl>'


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    more = [f"… {len(lines) - _MOST_LINES:,} more"] if len(lines) > _MOST_LINES else []
    return [label(line, _LONGEST_TEXT) for line in lines[:_MOST_LINES]] + more


_MOST_LINES = 40


def note(text: str) -> str:
    """Return a remark as HTML."""
    return f'<p class="remark">{label(text)}</p>'
