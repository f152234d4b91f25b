"""The stacked bars of the bill: bounds as a whisker, a limit, and the numbers as a table.

`script.js` moves the same shapes when another case is chosen; it makes none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokmill.page.markup import label
from tokmill.words.units import memory

FITS_WORDS = ("fits", "probably fits", "does not fit", "unknown", "unknown")
"""A word for each digit of a verdict."""
FITS_KINDS = ("yes", "maybe", "no", "", "")
NO_AMOUNT = "not possible"
_TOP, _PITCH, _NAME, _THICK = 18, 48, 20, 16
_ROOM = 190
"""Pixels at the right of a name for the text of a bar."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A stacked bar: expected bytes of each group, bounds of the total, and a text at its right.

    `note` follows the name. `kind` is a value of `FITS_KINDS`, `why` the reason of a bar without
    bytes.
    """

    name: str
    note: str
    amounts: tuple[int, ...]
    low_bytes: int
    high_bytes: int
    text: str
    kind: str = ""
    why: str = ""

    @property
    def n_bytes(self) -> int:
        """The expected total."""
        return sum(self.amounts)


@dataclass(frozen=True, slots=True)
class Limit:
    """A line across the bars, such as the memory of a GPU."""

    n_bytes: int
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure: its anchor, title, what it shows in words, groups and the heading of its rows.

    `tones`: the colour of each group, 1 to 8.
    """

    id: str
    title: str
    about: str
    groups: tuple[str, ...]
    tones: tuple[int, ...]
    key: str


def shown(n_bytes: int, digit: int) -> str:
    """Return the text at the right of a bar: the total, and the word for its verdict."""
    return f"{memory(n_bytes)}, {FITS_WORDS[digit]}"


def figure(chart: Chart, bars: Sequence[Bar], limit: Limit | None) -> str:
    """Return a figure with a bar for each row."""
    full = max([limit.n_bytes if limit else 0, *(bar.high_bytes for bar in bars)]) or 1
    rows = "".join(_row(chart, i, bar, full) for i, bar in enumerate(bars))
    keys = "".join(
        f'<li><i class="s{tone}"></i>{label(name)}</li>'
        for name, tone in zip(chart.groups, chart.tones, strict=True)
    )
    height = _TOP + len(bars) * _PITCH
    return (
        f'<figure class="chart cases" id="{chart.id}">'
        f'<figcaption id="{chart.id}-title">{label(chart.title)}</figcaption>'
        f'<ul class="keys">{keys}<li><i class="bounds"></i>lower to upper bound</li></ul>'
        f'<svg role="img" aria-labelledby="{chart.id}-title" aria-describedby="{chart.id}-about" '
        f'width="100%" height="{height}"><desc id="{chart.id}-about">{label(chart.about)}</desc>'
        f"{rows}{_limit(limit, full, height)}</svg>"
        f'<details><summary>Numbers<span class="unseen"> of {label(chart.title)}</span></summary>'
        f"{_table(chart, bars)}</details></figure>"
    )


def percent(n_bytes: float, full: int) -> str:
    """Return a position across the chart."""
    return f"{100 * n_bytes / full:.3f}%"


def _row(chart: Chart, number: int, bar: Bar, full: int) -> str:
    top, start, shapes = _TOP + number * _PITCH + _NAME, 0, ""
    for name, tone, n_bytes in zip(chart.groups, chart.tones, bar.amounts, strict=True):
        shapes += (
            f'<rect class="s{tone}" x="{percent(start, full)}" y="{top}" '
            f'width="{percent(n_bytes, full)}" height="{_THICK}" data-value="{n_bytes}">'
            f"<title>{label(name)}: {memory(n_bytes)}</title></rect>"
        )
        start += n_bytes
    amount, comma, word = bar.text.partition(", ")
    middle, low, high = (
        top + _THICK // 2,
        percent(bar.low_bytes, full),
        percent(bar.high_bytes, full),
    )
    ends = (top + 4, top + _THICK - 4)
    display = "inline" if bar.high_bytes else "none"
    return (
        f'<g class="bar"><rect class="track" x="0" y="{top}" width="100%" height="{_THICK}"/>'
        f'<svg class="name" x="0" y="{top - _NAME}" width="50%" height="{_NAME}" '
        f'style="width:calc(100% - {_ROOM}px)">'
        f'<text x="0" y="14"><tspan>{label(bar.name)}</tspan> '
        f'<tspan class="note" dx="6">{label(bar.note)}</tspan></text></svg>'
        f'<text class="value {bar.kind}" x="100%" y="{top - 6}"><tspan>{label(amount)}</tspan>'
        f'<tspan class="word">{label(comma + word)}</tspan></text>{shapes}'
        f'<g class="bounds" display="{display}">'
        f'<line x1="{low}" x2="{high}" y1="{middle}" y2="{middle}"/>'
        f'<line x1="{low}" x2="{low}" y1="{ends[0]}" y2="{ends[1]}"/>'
        f'<line x1="{high}" x2="{high}" y1="{ends[0]}" y2="{ends[1]}"/></g></g>'
    )


def _limit(limit: Limit | None, full: int, height: int) -> str:
    """Return the line of a limit; the script shows it in other cases if there is none in this.

    It is dashed, so that it crosses bars and not their names.
    """
    n_bytes, text = (limit.n_bytes, limit.text) if limit else (0, "")
    x, side = percent(n_bytes, full), "end" if 2 * n_bytes > full else "start"
    display = "inline" if limit else "none"
    return (
        f'<line class="limit" x1="{x}" x2="{x}" y1="{_TOP + _NAME - 3}" y2="{height}" '
        f'stroke-dasharray="{_THICK + 6} {_PITCH - _THICK - 6}" data-value="{n_bytes}" '
        f'display="{display}"/>'
        f'<text class="limit {side}" x="{x}" y="10" display="{display}">{label(text)}</text>'
    )


def _table(chart: Chart, bars: Sequence[Bar]) -> str:
    heads = (chart.key, *chart.groups, "expected", "lower bound", "upper bound", "")
    head = "".join(
        f'<th scope="col"{" class=n" if 0 < i < len(heads) - 1 else ""}>{label(name)}</th>'
        for i, name in enumerate(heads)
    )
    body = "".join(
        f'<tr><th scope="row">{label(bar.name)}</th>'
        + "".join(
            f'<td class="n" data-value="{n}">{memory(n) if bar.high_bytes else ""}</td>'
            for n in bar.amounts
        )
        + "".join(
            f'<td class="n">{memory(n) if bar.high_bytes else ""}</td>'
            for n in (bar.n_bytes, bar.low_bytes, bar.high_bytes)
        )
        + f"<td>{label(bar.why or bar.text.partition(', ')[2])}</td></tr>"
        for bar in bars
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label(chart.title)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
