from __future__ import annotations

from typing import Any

from hypothesis import given

from tests.render.test_encyclopedia import ROWS
from tokmill.render.built_in import Article
from tokmill.settings.schema import RenderSettings


def expected(row: dict[str, Any]) -> str:
    """The rule in plain Python; '' for a record without any text."""
    sections = [section or {} for section in row.get("sections") or []]
    bodies = ["\n".join(filter(None, (s.get("title"), s.get("content")))) for s in sections]
    return "\n\n".join(filter(None, (row.get("title"), row.get("summary"), *bodies)))


def rendered(records, rows):
    renderer = Article(RenderSettings())
    return renderer.render(records(rows, renderer.schema))


@given(ROWS)
def test_the_rule_holds_for_any_records(records, rows):
    documents = rendered(records, rows)
    texts = [expected(row) for row in rows]
    assert documents.text.to_pylist() == [text for text in texts if text]
    assert documents.rows.tolist() == [i for i, text in enumerate(texts) if text]
    assert {reject.reason for reject in documents.refused.values()} <= {"empty", "no such fields"}
    assert len(documents.refused) == texts.count("")
