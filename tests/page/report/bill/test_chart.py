"""The figure: shapes as long as their amounts, bounds, a limit, and a table with the same."""

from __future__ import annotations

import re

import pytest

from tokmill.page.report.bill.chart import Bar, Chart, Limit, figure, percent, shown
from tokmill.page.report.bill.choices import choices, segments, selection

GIB = 1 << 30
CHART = Chart("one", "A <title>", "what it shows", ("weights", "rest"), (1, 4), "row")
BARS = [
    Bar("small", "1 s", (GIB, GIB), GIB, 3 * GIB, shown(2 * GIB, 0), "yes"),
    Bar("large <b>", "", (6 * GIB, GIB), 5 * GIB, 8 * GIB, shown(7 * GIB, 2), "no"),
    Bar("never", "", (0, 0), 0, 0, "not possible", why="heads <8>"),
]


def rects(html: str) -> list[tuple[str, str, str]]:
    found = re.findall(r'<rect class="s(\d)" x="([\d.]+)%" y="\d+" width="([\d.]+)%"', html)
    return [(tone, float(x), float(width)) for tone, x, width in found]


def test_bars_share_one_scale_up_to_the_largest_bound():
    html = figure(CHART, BARS, Limit(4 * GIB, "GPU"))
    assert rects(html) == [
        ("1", 0, 12.5), ("4", 12.5, 12.5), ("1", 0, 75), ("4", 75, 12.5), ("1", 0, 0), ("4", 0, 0),
    ]  # fmt: skip
    bounds = re.findall(
        r'<g class="bounds" display="(\w+)"><line x1="([\d.]+)%" x2="([\d.]+)%"', html
    )
    assert bounds == [
        ("inline", "12.500", "37.500"), ("inline", "62.500", "100.000"), ("none", "0.000", "0.000"),
    ]  # fmt: skip


def test_the_limit_is_the_scale_if_it_is_larger():
    html = figure(CHART, BARS[:1], Limit(8 * GIB, "GPU, 8.00 GiB"))
    assert rects(html)[0] == ("1", 0, 12.5)
    assert 'class="limit end" x="100.000%"' in html
    assert "GPU, 8.00 GiB" in html
    assert 'display="inline"' in html


def test_a_limit_at_the_left_has_its_name_at_its_right():
    assert 'class="limit start"' in figure(CHART, BARS, Limit(GIB, "GPU"))


def test_without_a_limit_its_line_waits_for_another_case():
    html = figure(CHART, BARS, None)
    limit = re.findall(r'<(\w+) class="limit[^>]* display="(\w+)"', html)
    assert limit == [("line", "none"), ("text", "none")]


def test_bars_without_bytes_have_a_scale_too():
    html = figure(CHART, BARS[2:], None)
    assert "nan" not in html
    assert {width for _, _, width in rects(html)} == {0}


def test_names_are_escaped():
    html = figure(CHART, BARS, Limit(GIB, "<GPU>"))
    for text in ("A <title>", "large <b>", "heads <8>", "<GPU>"):
        assert text not in html
        assert text.replace("<", "&lt;").replace(">", "&gt;") in html


def test_the_table_has_the_amounts_of_the_shapes():
    html = figure(CHART, BARS, None)
    body = html[html.index("<tbody>") :]
    shapes = re.findall(r'<rect class="s\d"[^>]* data-value="(\d+)"', html)
    assert re.findall(r'<td class="n" data-value="(\d+)"', body) == shapes
    rows = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in body.split("<tr>")[1:]]
    assert rows == [
        ["1.00 GiB", "1.00 GiB", "2.00 GiB", "1.00 GiB", "3.00 GiB", "fits"],
        ["6.00 GiB", "1.00 GiB", "7.00 GiB", "5.00 GiB", "8.00 GiB", "does not fit"],
        ["", "", "", "", "", "heads &lt;8&gt;"],
    ]


def test_every_shape_says_what_it_is():
    html = figure(CHART, BARS, None)
    assert "<title>weights: 1.00 GiB</title>" in html
    assert 'aria-labelledby="one-title"' in html
    assert '<desc id="one-about">what it shows</desc>' in html


@pytest.mark.parametrize(
    ("digit", "text"),
    [(0, "fits"), (1, "probably fits"), (2, "does not fit"), (3, "unknown"), (4, "unknown")],
)
def test_a_total_is_followed_by_its_verdict(digit, text):
    assert shown(1536 << 20, digit) == f"1.50 GiB, {text}"


def test_positions_have_three_decimals():
    assert percent(1, 3) == "33.333%"


def test_a_list_has_the_chosen_entry():
    html = selection("gpu", "GPU", ["T4", "<A10>"], 1)
    assert '<label for="bill-gpu">GPU</label>' in html
    assert '<option value="0">T4</option>' in html
    assert '<option value="1" selected>&lt;A10&gt;</option>' in html


def test_buttons_are_named_as_a_group_and_one_is_pressed():
    html = segments("batch", "Micro batch", ["1", "2"], 0)
    assert html.startswith('<fieldset class="choice"><legend>Micro batch</legend>')
    assert html.count('type="radio"') == html.count('name="bill-batch"') == 2
    assert html.count(" checked") == 1
    assert "<span>1</span>" in html


def test_long_names_are_shortened_in_controls():
    html = selection("model", "Model", ["/a/" + "x" * 500], 0)
    assert len(html) < 400
    assert "…" in html


def test_controls_are_hidden_and_named():
    assert choices("A & B", ["<i></i>"]) == (
        '<div class="choices" role="group" aria-label="A &amp; B" hidden><i></i></div>'
    )
