"""Encyclopedia records by the formula, and articles by blank lines."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.rendering.built_in import Article, Encyclopedia
from tokmill.settings.schema import RenderSettings

TEXTS = st.none() | st.sampled_from(["", ":", "。", "a"]) | st.text(max_size=5)
SECTIONS = st.none() | st.fixed_dictionaries({}, optional={"title": TEXTS, "content": TEXTS})
ROWS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "title": TEXTS,
            "summary": TEXTS,
            "sections": st.none() | st.lists(SECTIONS, max_size=3),
        },
    ),
    max_size=6,
)


def formula(row: dict[str, Any], separator: str = ":", terminator: str = "。") -> str | None:
    """The rule in plain Python; None for a record without any text."""
    sections = [section or {} for section in row.get("sections") or []]
    pairs = [(row.get("title"), row.get("summary"))]
    pairs += [(section.get("title"), section.get("content")) for section in sections]
    if not any(title or content for title, content in pairs):
        return None
    first, *others = [(title or "") + separator + (content or "") for title, content in pairs]
    return first + "".join(other + terminator for other in others)


def rendered(records, rows, settings=None):
    renderer = Encyclopedia(settings or RenderSettings())
    return renderer.render(records(rows, renderer.schema))


def test_the_example_of_the_module_is_rendered_as_it_says(records):
    row = {"title": "猫", "summary": "哺乳动物", "sections": [{"title": "习性", "content": "夜行"}]}
    assert rendered(records, [row]).text.to_pylist() == ["猫:哺乳动物习性:夜行。"]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"title": "a"}, "a:"),
        ({"summary": "s"}, ":s"),
        ({"title": None, "summary": "s", "sections": None}, ":s"),
        ({"title": "a", "sections": []}, "a:"),
        ({"title": "a", "sections": [{}]}, "a::。"),
        ({"title": "a", "sections": [None]}, "a::。"),
        ({"sections": [{"content": "c"}]}, "::c。"),
        ({"sections": [{"title": "", "content": None}, {"title": "t"}]}, "::。t:。"),
        ({"title": ":"}, "::"),
        ({"title": " "}, " :"),
    ],
)
def test_an_absent_or_null_field_counts_as_empty(records, row, expected):
    assert formula(row) == expected
    assert rendered(records, [row]).text.to_pylist() == [expected]


@given(rows=ROWS)
def test_any_records_are_rendered_as_the_formula_says(records, rows):
    batch = rendered(records, rows)
    expected = [formula(row) for row in rows]
    assert batch.text.type == pa.large_string()
    assert batch.text.to_pylist() == [text for text in expected if text is not None]
    assert batch.rows.tolist() == [i for i, text in enumerate(expected) if text is not None]
    assert batch.rows.dtype == np.int64
    without_text = sorted([*batch.refused, *batch.drops.get("empty", ())])
    assert without_text == [i for i, text in enumerate(expected) if text is None]


RICH = [
    {"title": "a", "sections": [{"title": "b"}, {"content": "c"}]},
    {"summary": "d", "sections": None},
    {"title": None, "sections": [None, {"title": "e", "content": "f"}]},
    {"title": "g", "sections": []},
    {"sections": [{"title": "h"}] * 3},
]


def test_a_slice_of_a_batch_is_rendered_like_its_rows_alone(records):
    renderer = Encyclopedia(RenderSettings())
    whole = records(RICH, renderer.schema)
    for start, stop in combinations_with_replacement(range(6), 2):
        cut = replace(whole, batch=whole.batch.slice(start, stop - start))
        expected = [formula(row) for row in RICH[start:stop]]
        assert renderer.render(cut).text.to_pylist() == expected


def test_what_stands_in_the_buffers_under_a_null_list_is_not_rendered(records):
    renderer = Encyclopedia(RenderSettings())
    whole = records([{"title": "a", "sections": [{"title": "b"}]}] * 3, renderer.schema)
    title, summary, sections = whole.batch.columns
    hidden = pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 3], pa.int32()),
        sections.values,
        sections.type,
        mask=pa.array([False, True, False]),
    )
    batch = pa.RecordBatch.from_arrays([title, summary, hidden], schema=renderer.schema)
    text = renderer.render(replace(whole, batch=batch)).text
    assert text.to_pylist() == ["a:b:。", "a:", "a:b:。"]


@given(
    rows=ROWS,
    separator=st.sampled_from(["：", "", "\n"]),
    terminator=st.sampled_from(["", ".", "。\n"]),
)
def test_separator_and_terminator_are_settings(records, rows, separator, terminator):
    settings = RenderSettings(f"encyclopedia:separator={separator},terminator={terminator}")
    expected = [formula(row, separator, terminator) for row in rows]
    assert rendered(records, rows, settings).text.to_pylist() == [
        text for text in expected if text is not None
    ]


def test_the_keys_are_settings(records):
    settings = RenderSettings(
        fields=(
            "title=name",
            "summary=abstract",
            "sections=body",
            "section_title=head",
            "section_content=text",
        )
    )
    row = {"name": "a", "abstract": "s", "body": [{"text": "c", "head": "h"}], "title": "not this"}
    assert rendered(records, [row], settings).text.to_pylist() == ["a:sh:c。"]


def article(row: dict[str, Any]) -> str:
    """The rule in plain Python; '' for a record without any text."""
    sections = [section or {} for section in row.get("sections") or []]
    bodies = ["\n".join(filter(None, (s.get("title"), s.get("content")))) for s in sections]
    return "\n\n".join(filter(None, (row.get("title"), row.get("summary"), *bodies)))


def rendered_article(records, rows):
    renderer = Article(RenderSettings())
    return renderer.render(records(rows, renderer.schema))


@given(ROWS)
def test_the_rule_holds_for_any_records(records, rows):
    documents = rendered_article(records, rows)
    texts = [article(row) for row in rows]
    assert documents.text.to_pylist() == [text for text in texts if text]
    assert documents.rows.tolist() == [i for i, text in enumerate(texts) if text]
    assert {reject.reason for reject in documents.refused.values()} <= {"no such fields"}
    assert len(documents.refused) + len(documents.drops.get("empty", ())) == texts.count("")
