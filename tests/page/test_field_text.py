from __future__ import annotations

from tokmill.page.field_text import fields_line


def manifest(*sources, used=("text",)):
    totals = {}
    for fields in sources:
        for path, n in fields.items():
            totals[path] = totals.get(path, 0) + n
    rows = [{"path": f"{i}.jsonl", "fields": fields} for i, fields in enumerate(sources)]
    return {"fields_read": list(used), "totals": {"fields": totals}, "sources": rows}


def test_the_fields_that_were_read_and_left_out_are_named_with_their_shares():
    made = manifest({"text": 97, "title": 3, "url": 0})
    assert fields_line(made) == "text 97 %; left out: title 3 %, url"


def test_less_than_ninety_per_cent_comes_first():
    assert fields_line(manifest({"text": 80, "body": 20})) == (
        "only 80 % of the text is used: text 80 %; left out: body 20 %"
    )


def test_sources_of_which_less_is_used_are_named():
    made = manifest({"text": 980}, {"text": 10, "body": 10})
    assert fields_line(made) == "text 99 %; left out: body 1 %; used of the text: 1.jsonl 50 %"


def test_chats_and_datasets_without_the_counts_have_no_such_line():
    assert fields_line({"totals": {}, "sources": []}) == ""
