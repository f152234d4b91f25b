from __future__ import annotations

import pytest

from tokmill.rendering.fields import (
    FieldBytes,
    counted,
    describe_fields,
    is_text,
    percent,
    used_share,
    weigh,
)


def test_bytes_are_those_of_decoded_strings_by_path():
    record = {
        "text": "猫 sleeps",
        "meta": {"source": {"name": "my books", "deep": {"er": "one two"}}},
        "tags": ["one two", "猫猫"],
        "sections": [{"title": "a b c", "content": "d e f"}, {"title": "g h i"}],
        "n": 1,
        "none": None,
        "empty": [],
        "raw": b"some bytes",
        "image": b"\xff",
    }
    assert weigh(record, ()) == {
        "text": 10,
        "meta.source.name": 8,
        "meta.source.deep": 7,
        "tags[]": 13,
        "sections[].title": 10,
        "sections[].content": 5,
        "n": 0,
        "none": 0,
        "empty": 0,
        "raw": 10,
        "image": 0,
    }
    assert list(weigh(record, {"sections[].title", "n"}).items())[:3] == [
        ("n", 0), ("sections[].title", 10), ("text", 10),
    ]  # fmt: skip


def test_json_in_a_string_is_metadata_unless_its_field_is_named():
    record = {"sections": '[{"title": "one two"}]'}
    assert weigh(record, ()) == {"sections": 0}
    assert weigh(record, {"sections"}) == {"sections": 22}
    assert weigh(record, (), nested={"sections"}) == {"sections[].title": 7}


def test_a_used_field_counts_all_its_bytes_and_another_its_text():
    fields = {"text": FieldBytes(90, 10), "url": FieldBytes(50, 0), "title": FieldBytes(12, 10)}
    counts = counted(fields, {"text"})
    assert counts == {"text": 90, "url": 0, "title": 10}
    assert used_share(counts, {"text"}) == 0.9
    assert describe_fields(counts, {"text"}) == "text 90%; left out: title 10%, url"
    assert describe_fields({"text": 1}, {"text"}) == "text 100%"
    assert used_share({}, {"text"}) == 1


def test_an_empty_list_is_not_listed_beside_its_inner_fields():
    counts = {"text": 9, "tags": 0, "tags[]": 1, "meta": 0, "meta.a": 0, "tag": 0}
    assert describe_fields(counts, {"text"}) == "text 90%; left out: tags[] 10%, meta.a, tag"


def test_shares_never_round_to_all_or_nothing():
    assert [percent(n) for n in (0, 0.001, 0.5, 0.996, 1)] == [
        "0%", "under 1%", "50%", "over 99%", "100%",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "value",
    [
        "https://en.wikipedia.org/wiki/Cat", "https://zh.wikipedia.org/wiki/猫", "a/b/c.py",
        "a.png", "12", "-3.5", "Q42", "enwiki-12", "<urn:uuid:12f0-a>", "2019-04-25T12:57:54Z",
        "2019-04-25 12:57:54", "25 April 2019", "Thu, 25 Apr 2019 12:57:54 GMT", "2019年4月25日",
        "0f" * 32, "aGVsbG8gd29ybGQ=" * 99, "en", "", "CC-BY-SA-4.0", "a@b.c",
        '{"extraction_info": {"found math": true}}', "[1, 2, 3]",
    ],
)  # fmt: skip
def test_labels_of_a_record_are_no_text(value):
    assert not is_text(value)


@pytest.mark.parametrize(
    "value",
    ["Paris", "猫", "def f(x): return x", "hello world", "习近平", "in 2019 we met", "[see below]",
     "{not json}", "\ud800 alone"],
)  # fmt: skip
def test_words_are_text(value):
    assert is_text(value)
