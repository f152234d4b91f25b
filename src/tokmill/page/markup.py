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
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tokmill.inspect.summary import Rows

LONGEST_NAME, _BRIEF, _LONGEST_TEXT, _MOST_LINES = 120, 130, 400, 40
"""Columns of names, of brief texts and of texts, and lines of a text, that a page shows."""

_MOST_NARROW = 5
"""Columns of a table that a telephone shows with its bars."""

_EDGES = {"\n": "nl", "\t": "tab"}
_ODD = re.compile(
    "(?P<byte>[\udc80-\udcff])"
    "|(?P<control>[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f])"
    "|(?P<unseen>[\r\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0001-\U000e007f])"
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


def exact(n: int) -> Number:
    """Return a count to the last digit."""
    return Number(f"{n:,}", n)


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar in a table, of one or several amounts that stand behind each other.

    Attributes:
        values: the amounts.
        full: the value at the end of the place of the bar.
        tone: the number of the first amount's colour in the style of the page; the next has the
            next.
        limit: value of the line that no bar should pass; 0: no line.
    """

    values: Sequence[float]
    full: float
    tone: int = 1
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
        f'<i class="s{tone}" style="width:{100 * value / full:.3f}%" data-value="{value}"></i>'
        for tone, value in enumerate(bar.values, bar.tone)
    )
    line = f'<b style="left:{100 * bar.limit / full:.3f}%"></b>' if bar.limit else ""
    return f'<span aria-hidden="true">{parts}{line}</span>'


def histogram(
    names: Sequence[str],
    columns: Mapping[str, Sequence[Number]],
    ticks: Sequence[str],
    marked: Collection[int],
) -> str:
    """Return columns side by side, each value as its share of the sum of its series.

    A column has a name and a number for each of the series, whose `names` are told. A tick stands
    at its left edge, and so does a dashed line where its place is one of the `marked`.
    """
    sums = [sum(n.value for n in series) or 1 for series in zip(*columns.values(), strict=True)]
    shares = [
        [n.value / all_ for n, all_ in zip(own, sums, strict=True)] for own in columns.values()
    ]
    full = max(map(max, shares))
    drawn = []
    for at, (column, numbers) in enumerate(columns.items()):
        said = ", ".join(f"{n.text} {name}" for n, name in zip(numbers, names, strict=True))
        shapes = "".join(
            f'<i class="s{i}" style="height:{100 * share / full:.2f}%" data-value="{n.value}"></i>'
            for i, (n, share) in enumerate(zip(numbers, shares[at], strict=True), 1)
        )
        mark = " class=mark" if at and at in marked else ""
        drawn.append(
            f'<div{mark} title="{label(f"{column}: {said}")}">{shapes}'
            f"<small>{label(ticks[at])}</small></div>"
        )
    return f'<div class="histogram" aria-hidden="true">{"".join(drawn)}</div>'


def keys(names: Sequence[str], more: str = "") -> str:
    """Return what the colours of a chart mean; `more` is HTML of further entries."""
    listed = "".join(
        f'<li><i class="s{tone}"></i>{label(name)}</li>' for tone, name in enumerate(names, 1)
    )
    return f'<ul class="keys">{listed}{more}</ul>'


def facts(rows: Rows, *, is_brief: bool = False) -> str:
    """Return (name, text) rows as a list of definitions; a text may have several lines.

    `is_brief`: of a long text its beginning is shown, which opens the whole.
    """
    items = []
    for name, text in rows:
        html = "<br>".join(_lines(text))
        if is_brief and len(text) > _BRIEF:
            html = details(f"{text[:_BRIEF].replace(chr(10), ' ')} …", html)
        items += [f"<div><dt>{label(name)}</dt><dd>{html}</dd></div>"] if text else []
    return f'<dl class="facts">{"".join(items)}</dl>' if items else ""


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
