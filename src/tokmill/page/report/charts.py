"""Charts as inline SVG: rows of bars, stacks with a limit, columns with thresholds.

Positions across are percentages and positions down are pixels. So a chart is as wide as its place,
and its text is as large on a telephone as on a desk. No script draws anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokmill.page.markup import label
from tokmill.page.report.section import Cell, table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True)
class Chart:
    """What every chart has.

    Attributes:
        id: its anchor.
        title: what it shows.
        about: what a reader who cannot see it should know; one or two sentences.
        names: of its series, in the order of the values.
        key: the heading of the column with the names of rows.
        written: writes a value in the table of numbers.
        tones: numbers of the colours of the series, 1 to 8; empty: 1, 2, 3, …
    """

    id: str
    title: str
    about: str
    names: tuple[str, ...]
    key: str = "source"
    written: Callable[[float], str] = "{:,}".format
    tones: tuple[int, ...] = ()

    def tone(self, series: int) -> int:
        """Return the number of the colour of a series."""
        return self.tones[series] if self.tones else series % N_TONES + 1


N_TONES = 8


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a chart; `values` has one number for each series, `shown` stands at its right."""

    name: str
    values: tuple[float, ...]
    shown: str


@dataclass(frozen=True, slots=True)
class Line:
    """A line across all rows, such as the memory of a GPU."""

    value: float
    name: str


_LABEL, _GAP, _PITCH = 20, 3, 12
_NAME_COLUMNS = 44


def bars(
    chart: Chart,
    rows: Sequence[Row],
    *,
    full: Sequence[float] = (),
    line: Line | None = None,
) -> str:
    """Return rows of bars; several series stand below each other.

    `full`: for each series, the value of a bar of full width; by default the largest.
    """
    largest = [max((row.values[i] for row in rows), default=0) for i in range(len(chart.names))]
    full = list(full) or [max([*largest, line.value if line else 0])] * len(chart.names)
    thick = 10 if len(chart.names) == 1 else 7
    height = _LABEL + (thick + _GAP) * len(chart.names) + _PITCH
    drawn = []
    for i, row in enumerate(rows):
        top = i * height + _LABEL + (16 if line else 0)
        shapes = "".join(
            _bar(0, value / (full[j] or 1), top + j * (thick + _GAP), thick, chart.tone(j), value)
            for j, value in enumerate(row.values)
        )
        drawn.append(_row(row, top, shapes, len(chart.names) * (thick + _GAP)))
    return _figure(chart, rows, drawn, len(rows) * height, (line, full[0]) if line else None)


def stacks(chart: Chart, rows: Sequence[Row], *, line: Line | None = None) -> str:
    """Return rows of stacked bars; all have one scale, and `line` is drawn at its value."""
    full = max([*(sum(row.values) for row in rows), line.value if line else 0, 0]) or 1
    thick = 16
    height = _LABEL + thick + _GAP + _PITCH
    drawn = []
    for i, row in enumerate(rows):
        top, start, shapes = i * height + _LABEL + (16 if line else 0), 0.0, ""
        for j, value in enumerate(row.values):
            name = f"{chart.names[j]}: {chart.written(value)}"
            shapes += _bar(start / full, value / full, top, thick, chart.tone(j), value, name)
            start += value
        drawn.append(_row(row, top, shapes, thick))
    return _figure(chart, rows, drawn, len(rows) * height, (line, full) if line else None)


@dataclass(frozen=True, slots=True)
class Mark:
    """A dashed line before column `index`, with its name above."""

    index: int
    name: str


_COLUMNS_HEIGHT = 150


def columns(
    chart: Chart, rows: Sequence[Row], *, full: Sequence[float], marks: Sequence[Mark] = ()
) -> str:
    """Return columns side by side, `shown` of each row below them.

    `full`: for each series, the value of a column of full height.
    """
    n, n_series, foot = max(1, len(rows)), len(chart.names), 22
    top = 18 if marks else 4
    step, bottom = 100 / n, top + _COLUMNS_HEIGHT
    wide = step * 0.84 / n_series
    drawn = []
    for i, row in enumerate(rows):
        shapes = ""
        for j, value in enumerate(row.values):
            high = value / (full[j] or 1) * _COLUMNS_HEIGHT
            shapes += (
                f'<rect class="s{chart.tone(j)}" x="{(i + 0.08) * step + j * wide:.3f}%" '
                f'y="{bottom - high:.2f}" width="{wide * 0.94:.3f}%" height="{high:.2f}" '
                f'data-value="{value}"/>'
            )
        values = ", ".join(
            f"{chart.written(value)} {name}"
            for value, name in zip(row.values, chart.names, strict=True)
        )
        drawn.append(
            f"<g><title>{label(row.name)}: {label(values)}</title>"
            f'<rect class="hit" x="{i * step:.3f}%" y="{top}" width="{step:.3f}%" '
            f'height="{_COLUMNS_HEIGHT}"/>{shapes}'
            f'<text class="tick" x="{(i + 0.5) * step:.3f}%" y="{bottom + 15}">'
            f"{label(row.shown)}</text></g>"
        )
    drawn.append(f'<line class="axis" x1="0" x2="100%" y1="{bottom}" y2="{bottom}"/>')
    for mark in marks:
        x = f"{mark.index * step:.3f}%"
        drawn.append(
            f'<line class="mark" x1="{x}" x2="{x}" y1="{top - 3}" y2="{bottom}"/>'
            f'<text class="tick" x="{x}" y="{top - 7}">{label(mark.name)}</text>'
        )
    return _frame(chart, rows, "".join(drawn), bottom + foot)


def _bar(
    start: float, share: float, top: int, thick: int, tone: int, value: float, name: str = ""
) -> str:
    """Return a bar from `start`, both shares of the full width."""
    title = f"<title>{label(name)}</title>" if name else ""
    return (
        f'<rect class="s{tone}" x="{100 * start:.3f}%" y="{top}" width="{100 * share:.3f}%" '
        f'height="{thick}" data-value="{value}">{title}</rect>'
    )


def _row(row: Row, top: int, shapes: str, height: int) -> str:
    """Return a row: its name, clipped where its value begins, its value, and its bars."""
    return (
        f"<g><title>{label(row.name, 200)}: {label(row.shown)}</title>"
        f'<rect class="track" x="0" y="{top}" width="100%" height="{height}"/>'
        f'<svg class="name" x="0" y="{top - _LABEL}" width="64%" height="{_LABEL}">'
        f'<text x="0" y="14">{label(row.name, _NAME_COLUMNS)}</text></svg>'
        f'<text class="value" x="100%" y="{top - _LABEL + 14}">{label(row.shown)}</text>'
        f"{shapes}</g>"
    )


def _figure(
    chart: Chart,
    rows: Sequence[Row],
    drawn: list[str],
    height: int,
    line: tuple[Line, float] | None,
) -> str:
    if line is None:
        return _frame(chart, rows, "".join(drawn), height)
    mark, full = line
    share = mark.value / (full or 1)
    anchor = "end" if share > 0.5 else "start"
    x = f"{100 * min(share, 1):.3f}%"
    drawn.append(
        f'<line class="limit" x1="{x}" x2="{x}" y1="14" y2="{height + 12}" '
        f'data-value="{mark.value}"/>'
        f'<text class="limit {anchor}" x="{x}" y="10">{label(mark.name)}</text>'
    )
    return _frame(chart, rows, "".join(drawn), height + 16)


def _frame(chart: Chart, rows: Sequence[Row], drawing: str, height: float) -> str:
    """Return a chart with its title, its legend, and its numbers as a table."""
    numbers = table(
        (chart.key, *chart.names),
        [(row.name, *(Cell(chart.written(value), value) for value in row.values)) for row in rows],
        chart.title,
    )
    return (
        f'<figure class="chart" id="{chart.id}">'
        f'<figcaption id="{chart.id}-title">{label(chart.title)}</figcaption>{_legend(chart)}'
        f'<svg role="img" aria-labelledby="{chart.id}-title" aria-describedby="{chart.id}-about" '
        f'width="100%" height="{height:.0f}"><desc id="{chart.id}-about">{label(chart.about)}'
        f"</desc>{drawing}</svg>"
        f"<details><summary>Numbers<span class=unseen> of {label(chart.title)}</span></summary>"
        f"{numbers}</details></figure>"
    )


def _legend(chart: Chart) -> str:
    if len(chart.names) < 2:
        return ""
    names = "".join(
        f'<li><i class="s{chart.tone(i)}"></i>{label(name)}</li>'
        for i, name in enumerate(chart.names)
    )
    return f'<ul class="keys">{names}</ul>'
