from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tokmill.errors import UsageError
from tokmill.fields import FieldSample
from tokmill.render.built_in import Encyclopedia, Template
from tokmill.render.renderer import documents, joined, literal, make_renderer
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
            "sections with --renderer=article, or only the other texts with "
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


def test_a_template_of_one_known_key_is_enough(records):
    settings = RenderSettings(renderer="template", template="{a}-{b}")
    renderer = make_renderer(settings, sample({"a": "x", "z": "?"}))
    batch = renderer.render(records([{"a": "x", "z": "?"}], renderer.schema))
    assert batch.text.to_pylist() == ["x-"]


SCHEMA = pa.schema([("a", pa.string()), ("b", pa.string())])


def test_columns_and_literals_are_joined_row_by_row():
    column = pa.array(["x", "", "猫"])
    assert joined(column, literal(":"), column, literal("。")).to_pylist() == [
        "x:x。",
        ":。",
        "猫:猫。",
    ]


def test_one_column_alone_is_given_as_it_is():
    column = pa.array(["x", "y"])
    assert joined(column) is column


def test_documents_without_an_empty_one_are_all_rows(records):
    rows = [{"a": "x"}, {"a": "y"}]
    batch = documents(records(rows, SCHEMA), pa.array(["x", "y"]), np.zeros(2, bool))
    assert batch.text.type == pa.large_string()
    assert batch.text.to_pylist() == ["x", "y"]
    assert batch.rows.tolist() == [0, 1]
    assert batch.refused == {}


def test_a_batch_without_rows_gives_no_documents(records):
    batch = documents(records([], SCHEMA), pa.array([], pa.string()), np.zeros(0, bool))
    assert (len(batch.text), batch.rows.tolist(), batch.refused) == (0, [], {})
    assert batch.text.type == pa.large_string()


@pytest.mark.parametrize(
    ("row", "reason", "message"),
    [
        ({"a": "", "c": "x"}, "empty", "all texts of the record are empty"),
        ({"a": None}, "empty", "all texts of the record are empty"),
        ({"c": "x", "d": 1}, "no such fields", "expected any of a, b; found c, d"),
        ({}, "no such fields", "expected any of a, b; found no keys"),
    ],
)
def test_an_empty_record_says_whether_its_keys_or_its_texts_were_missing(
    records, row, reason, message
):
    batch = documents(
        records([{"a": "x"}, row], SCHEMA), pa.array(["x", ""]), np.array([False, True])
    )
    assert [(r.place, r.reason, r.message) for r in batch.refused.values()] == [
        (RecordPlace(2, 10), reason, message)
    ]
    assert batch.text.to_pylist() == ["x"]


def test_all_records_may_be_rejected_in_order(records):
    rows = [{"a": ""}] * 3
    batch = documents(records(rows, SCHEMA), pa.array([""] * 3), np.ones(3, bool))
    assert len(batch.text) == 0
    assert [reject.place.line for reject in batch.refused.values()] == [1, 2, 3]


def test_a_reject_keeps_no_more_than_the_limit(records):
    batch = documents(records([{"c": "x" * 5000}], SCHEMA), pa.array([""]), np.ones(1, bool))
    (reject,) = batch.refused.values()
    assert isinstance(reject, Reject)
    assert len(reject.raw) == RAW_LIMIT_BYTES
