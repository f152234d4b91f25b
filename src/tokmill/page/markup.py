"""Pieces of web pages: escaped text, and the parts that every section is made of.

Bars are shares of the place that they have, so no script draws anything, and text has the same size
on a telephone. Each bar stands beside its number.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from tokmill.words import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tokmill.page.summary import Rows

LONGEST_NAME, _BRIEF, _LONGEST_TEXT, _MOST_LINES = 120, 130, 400, 40
"""Columns of names and of texts, and lines of a text, that a page shows; more is left out."""

_MOST_NARROW = 5
"""Columns of a table that a telephone shows with its bars."""

_EDGES = {"\n": "nl", "\t": "tab"}
_ODD = re.compile(
    "(?P<byte>[\udc80-\udcff])"
    "|(?P<control>[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f])"
    "|(?P<unseen>[\r\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff])"
)
"""Characters that HTML cannot hold or a browser would not show."""


def label(text: str, most: int = 0) -> str:
    """Return text escaped for HTML, on one line and without characters that change others.

    `most`: columns of a terminal to which it is shortened in the middle; 0: not at all.
    """
    return escape(shortened(text, most) if most else printable(text))


def shortened(text: str, most: int) -> str:
    """Return text made printable, its middle replaced by `…` where it has over `most` columns."""
    if len(text) > 4 * most:  # a title may have megabytes
        text = f"{text[: 2 * most]}{text[-2 * most :]}"
    text = printable(text)
    if _columns(text) <= most:
        return text
    tail = _first(text[::-1], most * 2 // 3)[::-1]  # the end of a path says most
    return f"{_first(text, most - 1 - _columns(tail))}…{tail}"


def _first(text: str, most: int) -> str:
    n_columns = 0
    for i, character in enumerate(text):
        n_columns += _columns(character)
        if n_columns > most:
            return text[:i]
    return text


def _columns(text: str) -> int:
    return sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


def content(text: str, *, is_edge: bool = False) -> str:
    """Return text of a record as HTML; of `is_edge`, white space is marked."""
    if not is_edge:
        return _ODD.sub(_odd, escape(text))
    return "".join(f'<span class="{_EDGES.get(c, "sp")}">{content(c)}</span>' for c in text)


def _odd(found: re.Match[str]) -> str:
    number = ord(found[0])
    if found["byte"]:
        return f'<span class="x">\\x{number - 0xDC00:02x}</span>'
    if found["control"]:
        return f'<span class="x">\\x{number:02x}</span>'
    return f'<bdi class="o" data-code="U+{number:04X}">&#{number};</bdi>'


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a page: its anchor, its heading as text, and its body as HTML."""

    id: str
    title: str
    html: str


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a table or a tile: its text, and its value."""

    text: str
    value: float


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar in a table, of one or several amounts that stand behind each other.

    Attributes:
        values: the amounts.
        full: the value at the end of the place of the bar.
        tones: the numbers of their colours in the style of the page.
        names: of the amounts; a pointer shows them.
        limit: value of the line that no bar should pass; 0: no line.
    """

    values: tuple[float, ...]
    full: float
    tones: tuple[int, ...] = (1,)
    names: tuple[str, ...] = ("",)
    limit: float = 0


@dataclass(frozen=True, slots=True)
class Said:
    """A verdict in a table: its text, and `green`, `yellow`, `red` or ''."""

    text: str
    style: str


Cell = str | Number | Bar | Said


def table(
    name: str,
    head: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    first: int = 0,
    total: bool = False,
) -> str:
    """Return a table in a box that scrolls on narrow screens; the first column has names.

    `first`: rows after so many are shown when they are opened; 0: all are shown. `total`: the last
    row is the sum of the others.
    """
    rows = list(rows)
    if first and len(rows) > first + 1:
        rest = table(name, head, rows[first:])
        return table(name, head, rows[:first]) + details(f"{len(rows) - first} more", rest)
    kinds = [_kind_of([row[at] for row in rows]) for at in range(len(head))]
    heads = "".join(
        f"<th scope=col{kind}>{label(text)}</th>" for text, kind in zip(head, kinds, strict=True)
    )
    names = [f"<th scope=row>{label(str(row[0]), LONGEST_NAME)}</th>" for row in rows]
    cells = ["".join(map(_cell, row[1:])) for row in rows]
    lines = [f"<tr>{name}{rest}</tr>" for name, rest in zip(names, cells, strict=True)]
    foot = f"<tfoot>{lines.pop()}</tfoot>" if total else ""
    wide = " class=wide" if len(head) > _MOST_NARROW else ""
    return (
        f'<div class="scroll"><table{wide} aria-label="{label(name)}"><thead><tr>{heads}</tr>'
        f"</thead><tbody>{''.join(lines)}</tbody>{foot}</table></div>"
    )


def _kind_of(cells: Sequence[Cell]) -> str:
    """Return the class of a column, as an attribute."""
    if any(isinstance(cell, Bar) for cell in cells):
        return " class=bar"
    return " class=n" if any(isinstance(cell, Number) for cell in cells) else ""


def _cell(cell: Cell) -> str:
    if isinstance(cell, Bar):
        return f'<td class="bar">{_bar(cell)}</td>'
    if isinstance(cell, Number):
        return f'<td class="n" data-value="{cell.value}">{label(cell.text)}</td>'
    if isinstance(cell, Said):
        return f'<td class="short {cell.style}">{label(cell.text, _LONGEST_TEXT)}</td>'
    return f"<td>{label(cell, _LONGEST_TEXT)}</td>"


def _bar(bar: Bar) -> str:
    full = bar.full or 1
    parts = "".join(
        f'<i class="s{tone}" style="width:{100 * value / full:.3f}%" data-value="{value}"'
        f"{f' title={chr(34)}{label(name)}{chr(34)}' if name else ''}></i>"
        for value, tone, name in zip(bar.values, bar.tones, bar.names, strict=True)
    )
    line = f'<b style="left:{100 * bar.limit / full:.3f}%"></b>' if bar.limit else ""
    return f'<span aria-hidden="true">{parts}{line}</span>'


@dataclass(frozen=True, slots=True)
class Column:
    """A place of a histogram: its name, its numbers, one for each series, and its tick.

    The tick stands at the left edge, and so does a dashed line if it `is_marked`.
    """

    name: str
    values: tuple[int, ...]
    tick: str
    is_marked: bool = False


def histogram(names: Sequence[str], columns: Sequence[Column]) -> str:
    """Return columns side by side, each value as its share of the sum of its series."""
    sums = [sum(column.values[i] for column in columns) or 1 for i in range(len(names))]
    full = max(n / sums[i] for column in columns for i, n in enumerate(column.values))
    drawn = []
    for column in columns:
        said = ", ".join(f"{n:,} {name}" for n, name in zip(column.values, names, strict=True))
        shapes = "".join(
            f'<i class="s{i + 1}" style="height:{100 * n / sums[i] / full:.2f}%" '
            f'data-value="{n}"></i>'
            for i, n in enumerate(column.values)
        )
        marked = " class=mark" if column.is_marked else ""
        drawn.append(
            f'<div{marked} title="{label(f"{column.name}: {said}")}">{shapes}'
            f"<small>{label(column.tick)}</small></div>"
        )
    return f'<div class="histogram" aria-hidden="true">{"".join(drawn)}</div>'


def keys(names: Sequence[str], tones: Sequence[int], more: str = "") -> str:
    """Return what the colours of a chart mean; `more` is HTML of further entries."""
    listed = "".join(
        f'<li><i class="s{tone}"></i>{label(name)}</li>'
        for name, tone in zip(names, tones, strict=True)
    )
    return f'<ul class="keys">{listed}{more}</ul>'


def facts(rows: Rows) -> str:
    """Return (name, text) rows as a list of definitions; a text may have several lines."""
    items = "".join(
        f"<div><dt>{label(name)}</dt><dd>{'<br>'.join(_lines(text))}</dd></div>"
        for name, text in rows
        if text
    )
    return f'<dl class="facts">{items}</dl>' if items else ""


def brief_facts(rows: Rows, title: str) -> str:
    """Return facts of which long ones are cut; they are whole under `title`, to be opened."""
    brief = [(name, text.partition("\nsuch as")[0]) for name, text in rows]
    brief = [
        (name, text if len(text) <= _BRIEF else f"{text[:_BRIEF].rpartition(' ')[0]} …")
        for name, text in brief
    ]
    cut = [row for row, shown in zip(rows, brief, strict=True) if row != shown]
    return facts(brief) + (details(title, facts(cut)) if cut else "")


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    more = [f"… {len(lines) - _MOST_LINES:,} more"] if len(lines) > _MOST_LINES else []
    return [label(line, _LONGEST_TEXT) for line in lines[:_MOST_LINES]] + more


def tiles(rows: Iterable[tuple[str, str | Number, str]]) -> str:
    """Return (name, value, remark) rows as tiles with large values."""
    items = []
    for name, shown, remark in rows:
        value = f' data-value="{shown.value}"' if isinstance(shown, Number) else ""
        text = shown.text if isinstance(shown, Number) else shown
        small = f"<dd class=remark>{label(remark)}</dd>" if remark else ""
        items.append(f"<div><dt>{label(name)}</dt><dd{value}>{label(text, 60)}</dd>{small}</div>")
    return f'<dl class="tiles">{"".join(items)}</dl>'


def note(text: str) -> str:
    """Return a remark as HTML."""
    return f'<p class="remark">{label(text, _LONGEST_TEXT)}</p>'


def panel(title: str, *parts: str) -> str:
    """Return a titled part of a section; panels stand side by side where there is room."""
    return f'<div class="panel"><h3>{label(title)}</h3>{"".join(parts)}</div>'


def panels(*html: str) -> str:
    """Return panels side by side."""
    return f'<div class="panels">{"".join(html)}</div>'


def details(summary: str, html: str) -> str:
    """Return HTML that is shown when its summary is opened."""
    return f"<details><summary>{label(summary)}</summary>{html}</details>"
