"""Charts: geometry and table have the numbers that were given, and no name leaves its element."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from tokmill.page.report.charts import Chart, Line, Marks, Row, bars, columns, stacks

CHART = Chart("c", "Tokens by source", "Each bar is a source.", ("tokens", "documents"))
ROWS = [Row("a.jsonl", (300, 4), "300"), Row("b & <c>", (100, 1), "100"), Row("none", (0, 0), "0")]
EVIL = "</svg></title><script>x=1</script><img src=x onerror=x=1>\u202e\x00"


def svg_of(html: str) -> ET.Element:
    """Return the drawing, which is well-formed XML."""
    drawing = html[html.index('<svg role="img"') : html.rindex("</svg>") + len("</svg>")]
    return ET.fromstring(drawing)  # of ours


def rects(html: str, tone: int) -> list[tuple[float, float, float]]:
    """Return x, width and value of the bars of one colour."""
    return [
        (float(one.attrib["x"][:-1]), float(one.attrib["width"][:-1]), float(one.get("data-value")))
        for one in svg_of(html).iter("rect")
        if one.get("class") == f"s{tone}"
    ]


def table_of(html: str) -> list[float]:
    return [float(value) for value in re.findall(r'<td class="n" data-value="([^"]+)"', html)]


def test_a_bar_is_as_long_as_its_share_of_the_largest():
    html = bars(Chart("c", "t", "a", ("tokens",)), [Row("a", (300,), ""), Row("b", (75,), "")])
    assert rects(html, 1) == [(0, 100, 300), (0, 25, 75)]


def test_stacked_bars_stand_behind_each_other_on_one_scale():
    html = stacks(CHART, [Row("a", (30, 10), "40"), Row("b", (10, 10), "20")])
    assert rects(html, 1) == [(0, 75, 30), (0, 25, 10)]
    assert rects(html, 2) == [(75, 25, 10), (25, 25, 10)]


@pytest.mark.parametrize(("limit", "at", "width"), [(80, "100.000%", 37.5), (20, "50.000%", 75)])
def test_a_limit_stands_at_its_value_and_belongs_to_the_scale(limit, at, width):
    html = stacks(CHART, [Row("a", (30, 10), "40")], line=Line(limit, "a GPU"))
    line = next(one for one in svg_of(html).iter("line") if one.get("class") == "limit")
    assert (line.get("x1"), line.get("data-value")) == (at, str(limit))
    assert rects(html, 1)[0][1] == width
    assert "a GPU" in html


def test_columns_are_as_high_as_their_share_and_marks_stand_between_them():
    rows = [Row("1", (2, 4), "1"), Row("2 to 3", (1, 0), "2")]
    html = columns(CHART, rows, full=(2, 8), marks=Marks("context sizes", (1,)))
    drawn = [one for one in svg_of(html).iter("rect") if one.get("data-value")]
    assert [float(one.attrib["height"]) for one in drawn] == [150, 75, 75, 0]
    lines = [one.get("x1") for one in svg_of(html).iter("line") if one.get("class") == "mark"]
    assert lines == ["50.000%"]
    ticks = [one.get("x") for one in svg_of(html).iter("text") if one.get("class") == "tick"]
    assert ticks == ["0.000%", "50.000%"]
    assert '<i class="dashed"></i>context sizes' in html


@pytest.mark.parametrize("draw", [bars, stacks, lambda *args: columns(*args, full=(300, 4))])
def test_a_chart_has_a_name_a_description_and_its_numbers_as_a_table(draw):
    html = draw(CHART, ROWS)
    svg = svg_of(html)
    assert svg.get("role") == "img"
    assert f'id="{svg.get("aria-labelledby")}">Tokens by source<' in html
    assert f'id="{svg.get("aria-describedby")}">Each bar is a source.<' in html
    assert table_of(html) == [300, 4, 100, 1, 0, 0]
    assert html.count("b &amp; &lt;c&gt;") >= 2


@pytest.mark.parametrize("draw", [bars, stacks, lambda *args: columns(*args, full=(300, 4))])
def test_no_name_of_a_record_becomes_markup(draw):
    html = draw(CHART, [Row(EVIL, (1, 1), EVIL)])
    svg_of(html)
    assert "<script" not in html
    assert "<img" not in html
    assert not any(c in html for c in "\u202e\x00")
