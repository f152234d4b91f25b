from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.errors import UsageError
from tokmill.render.built_in import Template, parse_template, text_renderer
from tokmill.settings.schema import RenderSettings

TEXTS = st.none() | st.text(max_size=4)
ROWS = st.lists(st.fixed_dictionaries({}, optional={"a": TEXTS, "b": TEXTS}), max_size=5)


def rendered(records, template, rows):
    renderer = Template(template, "template")
    return renderer.render(records(rows, renderer.schema))


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{title}", [("", "title")]),
        ("{title}\n{body}", [("", "title"), ("\n", "body")]),
        ("<{a}>", [("<", "a"), (">", "")]),
        ("{a}{a}", [("", "a"), ("", "a")]),
        ("{{{a}}}", [("{", ""), ("", "a"), ("}", "")]),
        ("{page title}", [("", "page title")]),
        ("标题：{标题}", [("标题：", "标题")]),
    ],
)
def test_a_format_string_is_split_into_literals_and_fields(template, expected):
    assert parse_template(template) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("", "template '': has no field such as {title}"),
        ("plain", "template 'plain': has no field such as {title}"),
        ("{{title}}", "template '{{title}}': has no field such as {title}"),
        (
            "{}",
            "template '{}': expected plain named fields like {title}, found {}",
        ),
        (
            "{a} {b:>10}",
            "template '{a} {b:>10}': expected plain named fields like {title}, found {b:>10}",
        ),
        (
            "{a!r}",
            "template '{a!r}': expected plain named fields like {title}, found {a!r}",
        ),
        (
            "{a!s:x}",
            "template '{a!s:x}': expected plain named fields like {title}, found {a!s:x}",
        ),
        (
            "{a",
            "template '{a': expected '}' before end of string; write {{ for a brace",
        ),
        (
            "{a}}",
            "template '{a}}': Single '}' encountered in format string; write {{ for a brace",
        ),
        (
            "{",
            "template '{': Single '{' encountered in format string; write {{ for a brace",
        ),
    ],
)
def test_a_template_that_does_not_parse_is_refused(template, expected):
    with pytest.raises(UsageError) as caught:
        parse_template(template)
    assert str(caught.value) == expected


def test_the_schema_asks_for_every_field_once():
    renderer = Template("{b} {a} {b}", "template")
    assert renderer.schema == pa.schema([("b", pa.string()), ("a", pa.string())])
    assert renderer.name == "template"


def test_fields_and_literals_are_rendered_in_order(records):
    rows = [{"a": "x", "b": "y"}, {"a": "猫"}, {"b": "z", "a": None}]
    batch = rendered(records, "{a}: {b}.", rows)
    assert batch.text.to_pylist() == ["x: y.", "猫: .", ": z."]


def test_doubled_braces_are_braces(records):
    assert rendered(records, "{{{a}}}", [{"a": "x"}]).text.to_pylist() == ["{x}"]


def test_one_bare_field_is_the_text_renderer(records):
    batch = rendered(records, "{a}", [{"a": "x"}, {"a": " y\n"}])
    assert text_renderer(RenderSettings(fields=("text=a",))).schema.names == ["a"]
    assert batch.text.to_pylist() == ["x", " y\n"]
    assert batch.text.type == pa.large_string()


def test_a_record_whose_fields_are_all_empty_is_rejected(records):
    rows = [{"a": "x"}, {"a": "", "b": None}, {"c": "z"}, {"b": "y"}]
    batch = rendered(records, "<{a}{b}>", rows)
    assert batch.text.to_pylist() == ["<x>", "<y>"]
    assert batch.rows.tolist() == [0, 3]
    assert [(reject.place.line, reject.reason) for reject in batch.refused.values()] == [
        (2, "empty"),
        (3, "no such fields"),
    ]


@given(rows=ROWS, template=st.sampled_from(["{a}", "{a}{b}", "{b}\n{a}{b}", "{{{a}}} {b}"]))
def test_any_records_are_rendered_as_python_formats_them(records, rows, template):
    batch = rendered(records, template, rows)
    wanted = Template(template, "x").schema.names
    expected = [
        template.format(a=row.get("a") or "", b=row.get("b") or "")
        for row in rows
        if any(row.get(name) for name in wanted)
    ]
    assert batch.text.to_pylist() == expected
    assert len(batch.refused) == len(rows) - len(expected)
