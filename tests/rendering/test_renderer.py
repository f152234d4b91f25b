"""The renderer of a source is the one named; a template is literals and fields."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.errors import UsageError
from tokmill.rendering.built_in import Encyclopedia, Template, parse_template
from tokmill.rendering.fields import FieldSample
from tokmill.rendering.renderer import documents, make_renderer
from tokmill.settings.schema import RenderSettings
from tokmill.values import RAW_LIMIT_BYTES, RecordPlace, Reject


def sample(*records):
    found = FieldSample(("sections",))
    for record in records:
        found.add(record)
    return found


@pytest.mark.parametrize(
    ("settings", "kind", "columns"),
    [
        ({"renderer": "encyclopedia"}, Encyclopedia, ["title", "summary", "sections"]),
        ({"renderer": "text"}, Template, ["text"]),
        ({"renderer": "text", "fields": ("text=body",)}, Template, ["body"]),
        ({"renderer": "template", "template": "{a}{b}"}, Template, ["a", "b"]),
    ],
)
def test_the_renderer_is_the_one_named(settings, kind, columns):
    renderer = make_renderer(RenderSettings(**settings))
    assert renderer.name == settings["renderer"]
    assert isinstance(renderer, kind)
    assert renderer.schema.names == columns


@pytest.mark.parametrize(
    ("settings", "record", "expected"),
    [
        (
            {"renderer": "text"},
            {"title": "a b c", "sections": [{"title": "t t t", "content": "some text of it"}]},
            "renderer text wants the keys text; the first records have title, sections: take the "
            "sections with --renderer=sections, or only the other texts with "
            "--template='{title}'",
        ),
        (
            {"renderer": "encyclopedia"},
            {"text": "some text"},
            "renderer encyclopedia wants the keys title, summary, sections; "
            "the first records have text: name it with --renderer=text --fields=text=text",
        ),
        (
            {"renderer": "template", "template": "{a}{b}"},
            {"text": "some text"},
            "renderer template wants the keys a, b; the first records have text: "
            "name it with --renderer=text --fields=text=text",
        ),
        (
            {"renderer": "template"},
            {"a": "some text"},
            "renderer template needs a --template such as '{title}\\n{body}'",
        ),
        (
            {"renderer": "template", "template": "{"},
            {"a": "some text"},
            "template '{': Single '{' encountered in format string; write {{ for a brace",
        ),
    ],
)
def test_a_source_without_the_fields_is_told_what_it_has_and_what_fits(settings, record, expected):
    with pytest.raises(UsageError) as caught:
        make_renderer(RenderSettings(**settings), sample(record))
    assert str(caught.value) == expected


def test_a_long_list_of_keys_is_cut_short():
    keys = sample({f"k{i}": "some text" for i in range(20)})
    with pytest.raises(UsageError, match=r"k10, k11, …: name all with"):
        make_renderer(RenderSettings(renderer="text"), keys)


SCHEMA = pa.schema([("a", pa.string()), ("b", pa.string())])


@pytest.mark.parametrize(
    ("row", "reason", "message"),
    [
        ({"c": "x", "d": 1}, "no such fields", "expected any of a, b; found c, d"),
        ({}, "no such fields", "expected any of a, b; found no keys"),
    ],
)
def test_a_record_without_the_fields_is_a_reject_that_names_its_own(records, row, reason, message):
    batch = documents(
        records([{"a": "x"}, row], SCHEMA), pa.array(["x", ""]), np.array([False, True])
    )
    assert [(r.place, r.reason, r.message) for r in batch.refused.values()] == [
        (RecordPlace(2, 10), reason, message)
    ]
    assert batch.text.to_pylist() == ["x"]


def test_a_reject_keeps_no_more_than_the_limit(records):
    batch = documents(records([{"c": "x" * 5000}], SCHEMA), pa.array([""]), np.ones(1, bool))
    (reject,) = batch.refused.values()
    assert isinstance(reject, Reject)
    assert len(reject.raw) == RAW_LIMIT_BYTES


TEXTS = st.none() | st.text(max_size=4)
ROWS = st.lists(st.fixed_dictionaries({}, optional={"a": TEXTS, "b": TEXTS}), max_size=5)


def rendered(records, template, rows):
    renderer = Template(template, "template")
    return renderer.render(records(rows, renderer.schema))


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("", "template '': has no field such as {title}"),
        ("plain", "template 'plain': has no field such as {title}"),
        ("{{title}}", "template '{{title}}': has no field such as {title}"),
        ("{}", "template '{}': expected plain named fields like {title}, found {}"),
        (
            "{a} {b:>10}",
            "template '{a} {b:>10}': expected plain named fields like {title}, found {b:>10}",
        ),
        ("{a!r}", "template '{a!r}': expected plain named fields like {title}, found {a!r}"),
        ("{a!s:x}", "template '{a!s:x}': expected plain named fields like {title}, found {a!s:x}"),
        ("{a", "template '{a': expected '}' before end of string; write {{ for a brace"),
        ("{a}}", "template '{a}}': Single '}' encountered in format string; write {{ for a brace"),
        ("{", "template '{': Single '{' encountered in format string; write {{ for a brace"),
    ],
)
def test_a_template_that_does_not_parse_is_refused(template, expected):
    with pytest.raises(UsageError) as caught:
        parse_template(template)
    assert str(caught.value) == expected


@pytest.mark.parametrize("row", [{"a": "", "c": "x"}, {"a": None}, {"a": None, "b": ""}])
def test_a_record_without_text_is_a_drop(records, row):
    batch = documents(
        records([{"a": "x"}, row], SCHEMA), pa.array(["x", ""]), np.array([False, True])
    )
    assert (batch.refused, batch.drops["empty"].tolist()) == ({}, [1])
    assert batch.text.to_pylist() == ["x"]


def test_a_record_whose_fields_are_all_empty_is_a_drop(records):
    rows = [{"a": "x"}, {"a": "", "b": None}, {"c": "z"}, {"b": "y"}]
    batch = rendered(records, "<{a}{b}>", rows)
    assert batch.text.to_pylist() == ["<x>", "<y>"]
    assert batch.rows.tolist() == [0, 3]
    assert batch.drops["empty"].tolist() == [1]
    assert [(reject.place.line, reject.reason) for reject in batch.refused.values()] == [
        (3, "no such fields")
    ]


def n_without_text(batch):
    return len(batch.refused) + len(batch.drops.get("empty", ()))


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
    assert n_without_text(batch) == len(rows) - len(expected)
