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
    """A line across the bars of all rows: a limit, such as the memory of a GPU, or an average."""

    value: float
    name: str
    is_limit: bool = True


@dataclass(frozen=True, slots=True)
class _Size:
    """Pixels down: the bars of a row, and a row with its name and the space after it."""

    bars: int

    @property
    def pitch(self) -> int:
        return _LABEL + self.bars + _SPACE


_LABEL, _GAP, _SPACE, _LINE_NAME = 20, 3, 13, 17
_RIGHT = 0.75
"""Of a line further right, the name stands to the left of it."""

_WIDE_COLUMNS, _NARROW_COLUMNS = 60, 24
"""Columns of names on wide and on narrow screens."""


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
    n = len(chart.names)
    largest = max([*(value for row in rows for value in row.values), line.value if line else 0, 0])
    full = list(full) or [largest] * n
    thick = 10 if n == 1 else 7
    size = _Size(n * (thick + _GAP) - _GAP)
    drawn = []
    for i, row in enumerate(rows):
        top = i * size.pitch + _LABEL + (_LINE_NAME if line else 0)
        shapes = "".join(
            _bar(0, value / (full[j] or 1), top + j * (thick + _GAP), thick, chart.tone(j), value)
            for j, value in enumerate(row.values)
        )
        drawn.append(_row(row, top, shapes, size.bars))
    return _with_line(chart, rows, drawn, size, full[0], line)


def stacks(chart: Chart, rows: Sequence[Row], *, line: Line | None = None) -> str:
    """Return rows of stacked bars; all have one scale, and `line` is drawn at its value."""
    full = max([*(sum(row.values) for row in rows), line.value if line else 0, 0]) or 1
    size = _Size(16)
    drawn = []
    for i, row in enumerate(rows):
        top, start, shapes = i * size.pitch + _LABEL + (_LINE_NAME if line else 0), 0.0, ""
        for j, value in enumerate(row.values):
            name = f"{chart.names[j]}: {chart.written(value)}"
            shapes += _bar(start / full, value / full, top, size.bars, chart.tone(j), value, name)
            start += value
        drawn.append(_row(row, top, shapes, size.bars))
    return _with_line(chart, rows, drawn, size, full, line)


@dataclass(frozen=True, slots=True)
class Marks:
    """Dashed lines before columns; `name` is what they mean."""

    name: str
    indices: tuple[int, ...]


_COLUMNS_HEIGHT = 150
_MOST_NARROW = 10
"""Columns that all have a tick on a telephone; of more, every second one has."""


def columns(
    chart: Chart, rows: Sequence[Row], *, full: Sequence[float], marks: Marks | None = None
) -> str:
    """Return columns side by side; `shown` of each row stands below the left edge of its place.

    `full`: for each series, the value of a column of full height.
    """
    n, n_series, foot = max(1, len(rows)), len(chart.names), 22
    top = 8
    step, bottom = 100 / n, top + _COLUMNS_HEIGHT
    wide = step * 0.84 / n_series
    narrow = " wide" if n > _MOST_NARROW else ""
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
            f'<text class="tick{narrow if i % 2 else ""}" x="{i * step:.3f}%" y="{bottom + 15}">'
            f"{label(row.shown)}</text></g>"
        )
    drawn.append(f'<line class="axis" x1="0" x2="100%" y1="{bottom}" y2="{bottom}"/>')
    for index in marks.indices if marks else ():
        x = f"{index * step:.3f}%"
        drawn.append(f'<line class="mark" x1="{x}" x2="{x}" y1="{top - 8}" y2="{bottom + 4}"/>')
    key = marks.name if marks and marks.indices else ""
    return _frame(chart, rows, "".join(drawn), bottom + foot, key)


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
    names, room = _name(row.name), 10 + 7.5 * len(row.shown)
    return (
        f"<g><title>{label(row.name, 200)}: {label(row.shown)}</title>"
        f'<rect class="track" x="0" y="{top}" width="100%" height="{height}"/>'
        f'<svg class="name" x="0" y="{top - _LABEL}" width="50%" height="{_LABEL}" '
        f'style="width:calc(100% - {room:.0f}px)">{names}</svg>'
        f'<text class="value" x="100%" y="{top - _LABEL + 14}">{label(row.shown)}</text>'
        f"{shapes}</g>"
    )


def _name(name: str) -> str:
    """Return a name as text; a long one also shortened for telephones."""
    wide, narrow = label(name, _WIDE_COLUMNS), label(name, _NARROW_COLUMNS)
    if wide == narrow:
        return f'<text x="0" y="14">{wide}</text>'
    return (
        f'<text class="wide" x="0" y="14">{wide}</text><text class="narrow" y="14">{narrow}</text>'
    )


def _with_line(
    chart: Chart, rows: Sequence[Row], drawn: list[str], size: _Size, full: float, line: Line | None
) -> str:
    """Return a chart whose rows are drawn, with a line over the bars of each row."""
    if line is None:
        return _frame(chart, rows, "".join(drawn), len(rows) * size.pitch)
    share = line.value / (full or 1)
    kind = "limit" if line.is_limit else "mean"
    side = "end" if share > _RIGHT else "start" if share < 1 - _RIGHT else "middle"
    x = f"{100 * share:.3f}%"
    for i in range(len(rows)):
        top = _LINE_NAME + i * size.pitch + _LABEL
        drawn.append(
            f'<line class="{kind}" x1="{x}" x2="{x}" y1="{top - 4}" y2="{top + size.bars + 3}" '
            f'data-value="{line.value}"/>'
        )
    drawn.append(f'<text class="{kind} {side}" x="{x}" y="10">{label(line.name)}</text>')
    return _frame(chart, rows, "".join(drawn), len(rows) * size.pitch + _LINE_NAME)


def _frame(chart: Chart, rows: Sequence[Row], drawing: str, height: float, marks: str = "") -> str:
    """Return a chart with its title, its legend, and its numbers as a table.

    `marks`: what dashed lines mean, if there are any.
    """
    numbers = table(
        (chart.key, *chart.names),
        [(row.name, *(Cell(chart.written(value), value) for value in row.values)) for row in rows],
        chart.title,
    )
    return (
        f'<figure class="chart" id="{chart.id}">'
        f'<figcaption id="{chart.id}-title">{label(chart.title)}</figcaption>'
        f"{_legend(chart, marks)}"
        f'<svg role="img" aria-labelledby="{chart.id}-title" aria-describedby="{chart.id}-about" '
        f'width="100%" height="{height:.0f}"><desc id="{chart.id}-about">{label(chart.about)}'
        f"</desc>{drawing}</svg>"
        f"<details><summary>Numbers<span class=unseen> of {label(chart.title)}</span></summary>"
        f"{numbers}</details></figure>"
    )


def _legend(chart: Chart, marks: str) -> str:
    if len(chart.names) < 2 and not marks:
        return ""
    names = "".join(
        f'<li><i class="s{chart.tone(i)}"></i>{label(name)}</li>'
        for i, name in enumerate(chart.names)
    )
    dashed = f'<li><i class="dashed"></i>{label(marks)}</li>' if marks else ""
    return f'<ul class="keys">{names}{dashed}</ul>'
