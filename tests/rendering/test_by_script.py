"""The letters of a file's first records, and the renderer that they ask for."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tokmill.rendering.built_in import Article, Encyclopedia
from tokmill.rendering.by_script import Head, RowTexts, Sections
from tokmill.rendering.detect import HEAD_LETTERS, sections_renderer
from tokmill.rendering.fields import Letters, count_letters
from tokmill.settings.schema import RenderSettings
from tokmill.values import EMPTY


def record(text: str, n: int = 1) -> dict:
    sections = [{"title": text, "content": text}] * n
    return {"title": text, "summary": text, "sections": sections}


@pytest.mark.parametrize(
    ("text", "n", "n_han"),
    [
        ("", 0, 0),
        ("Ab c, 12!", 3, 0),
        ("é ёж", 3, 0),
        ("“q” … →", 1, 0),
        ("漢字かなカナ", 6, 6),
        ("한글", 2, 0),
        ("（，！）", 0, 0),
        ("cat\U0001f600", 4, 0),
    ],
)
def test_letters_are_counted_by_script(text, n, n_han):
    assert count_letters(text.encode()) == Letters(n, n_han)


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        (Letters(0, 0), "as its source"),
        (Letters(39, 39), "as its source"),
        (Letters(40, 0), "article"),
        (Letters(1000, 19), "article"),
        (Letters(1000, 20), "as its source"),
        (Letters(1000, 99), "as its source"),
        (Letters(1000, 100), "encyclopedia"),
    ],
)
def test_letters_that_are_few_or_of_no_clear_script_leave_it_to_the_source(letters, expected):
    assert sections_renderer(letters, "as its source") == expected


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_a_head_is_the_same_in_any_blocks_and_ends_with_enough_letters(records, size):
    schema = Sections(RenderSettings("sections")).schema
    rows = [record("a" * 450), {}, *[record("b" * 450, n) for n in range(4)], record("汉" * 450)]
    whole, head = records(rows * 2, schema), Head()
    for start in range(0, len(rows) * 2, size):
        stop = min(start + size, len(rows) * 2)
        batch = whole.batch.slice(start, stop - start)
        head.add(RowTexts(batch), whole.places[start:stop], 0, stop - start)
    assert head.letters == Letters(1800 + 900 + 1800 + 2700, 0) >= Letters(HEAD_LETTERS, 0)


def test_the_texts_of_a_row_are_found_in_tables_of_any_layout(records):
    schema = Sections(RenderSettings("sections")).schema
    rows = [record("a", 2), {}, {"sections": [None, {"title": "t", "content": None}]}, record("b")]
    batch = records(rows, schema).batch
    taken = pa.RecordBatch.from_arrays(
        [c.take(pa.array([0, 1, 2, 3])) for c in batch], schema=schema
    )
    joined = pa.concat_batches([batch.slice(0, 1), batch.slice(1)])
    for layout in (batch, taken, joined, batch.slice(0, 4)):
        assert [RowTexts(layout).of_row(row) for row in range(4)] == [b"aaaaaa", b"", b"t", b"bbbb"]
    assert RowTexts(batch.slice(3)).of_row(0) == b"bbbb"
    assert RowTexts(batch.slice(0, 0)) is not None


def test_records_of_both_scripts_are_rendered_and_dropped_as_each_renderer_does(records):
    settings = RenderSettings("sections")
    sections = Sections(settings)
    found = records(
        [record("a", 2), {"title": ""}, record("汉"), {"summary": "b"}] * 2, sections.schema
    )
    by_formula = pa.array([True, True, True, False, False, False, False, True]).to_numpy(False)
    mixed = sections.render_each(found, by_formula)
    formula, article = Encyclopedia(settings).render(found), Article(settings).render(found)
    of_row = {
        row: (formula if by_formula[row] else article).text[i].as_py()
        for i, row in enumerate(formula.rows.tolist())
    }
    assert dict(zip(mixed.rows.tolist(), mixed.text.to_pylist(), strict=True)) == of_row
    assert mixed.drops[EMPTY].tolist() == formula.drops[EMPTY].tolist() == [1, 5]
