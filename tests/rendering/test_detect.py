from __future__ import annotations

import json
import re

import pytest

from tokmill.errors import UsageError
from tokmill.rendering.detect import detect, is_named, nested_keys, template_option
from tokmill.rendering.fields import FieldSample
from tokmill.settings.schema import RenderSettings

SECTIONS = [{"title": "habits", "content": "they hunt by night " * 9}]
BODY = "they hunt by night and sleep by day " * 9


def sampled(*records):
    found = FieldSample(nested_keys(RenderSettings()))
    for record in records:
        found.add(record)
    found.where = "a.jsonl"
    return found


def detected(record, **settings):
    found = detect(RenderSettings(**settings), sampled(record), "a.jsonl")
    return found.renderer, found.text_field


def refused(*records):
    with pytest.raises(UsageError) as caught:
        detect(RenderSettings(), sampled(*records), "a.jsonl")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("record", "field"),
    [
        ({"text": BODY}, "text"),
        ({"id": "12", "url": "https://a.b/c d", "title": "cats", "text": BODY}, "text"),
        ({"text": BODY, "meta": {"set": "Pile-CC"}}, "text"),
        ({"title": "cats at night", "content": BODY}, "content"),
        ({"title": "cats at night", "abstract": BODY}, "abstract"),
        ({"repo_name": "a/b", "path": "a/b.py", "size": 12, "content": BODY}, "content"),
        ({"text": "hello"}, "text"),
        ({"text": ""}, "text"),
    ],
)
def test_one_field_is_taken_if_it_holds_nearly_all_of_the_text(record, field):
    assert detected(record) == ("text", field)


@pytest.mark.parametrize(
    "record",
    [
        {"title": "cats", "summary": "a beast", "sections": SECTIONS},
        {"sections": SECTIONS, "id": "12"},
        {"title": "cats", "sections": [{"content": BODY, "image": "https://a.b/c.png"}]},
        {"title": "cats", "summary": BODY, "sections": []},
        {"title": "cats", "summary": BODY, "sections": None},
        {"title": "cats", "sections": '[{"title": "habits", "content": "they hunt by night"}]'},
    ],
)
def test_sections_are_what_has_sections_with_the_named_keys(record):
    assert detected(record)[0] == "sections"


def test_some_records_with_sections_may_lack_them():
    found = sampled({"title": "cats", "summary": BODY}, {"title": "dogs", "sections": SECTIONS})
    assert detect(RenderSettings(), found, "a.jsonl").renderer == "sections"


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (
            {"title": BODY, "body": BODY},
            "a.jsonl: the text is not in one field, found title 50%, body 50%: name all with "
            "--template='{title}\\n{body}', or one with --renderer=text --fields=text=title",
        ),
        (
            {"url": "https://a.b/c", "summary": BODY, "my text": BODY * 2},
            "a.jsonl: the text is not in one field, found my text 67%, summary 33%; without text "
            "url: name all with --template='{summary}\\n{my text}', or one with "
            "--renderer=text --fields='text=my text'",
        ),
        (
            {"title": "cats", "text": BODY, "sections": SECTIONS},
            "a.jsonl: the text is not in one field, found text 64%, sections[].content 34%, "
            "sections[].title 1%, title under 1%: take the sections with "
            "--renderer=sections, or only the other texts with --template='{title}\\n{text}'",
        ),
        (
            {"title": "cats", "sections": [{"heading": "habits at night", "text": BODY}]},
            "a.jsonl: the text is not in one field, found sections[].text 94%, "
            "sections[].heading 4%, title 1%: take the list with --renderer=sections "
            "--fields=section_content=text,section_title=heading",
        ),
        (
            {"标题": "猫", "段落": [{"行号": 1, "内容": "夜行动物。" * 40}]},
            "a.jsonl: the text is not in one field, found 段落[].内容 over 99%, 标题 under 1%; "
            "without text 段落[].行号: take the list with --renderer=article "
            "--fields='section_content=内容,sections=段落,title=标题'",
        ),
        (
            {"title": "cats", "paragraphs": [BODY, BODY]},
            "a.jsonl: the text is not in one field, found paragraphs[] over 99%, title under 1%: "
            "paragraphs is a list, and renderer text expects text under it: make one string of the "
            "list, or give a renderer of your own (--renderer=MODULE:FUNCTION)",
        ),
        (
            {"id": 12, "n": 3.5},
            "a.jsonl: the records hold no text: expected a field of sentences, found id (number), "
            "n (number): leave these records out of the input",
        ),
        (
            {"messages": [{"role": "user", "content": BODY}]},
            "a.jsonl: the records are chats (messages[].role, messages[].content): "
            "use tokmill sft; tokmill pretrain reads text",
        ),
        (
            {"id": "1", "messages": '[{"role": "user", "content": "how many are they"}]'},
            "a.jsonl: the records are chats (messages[].role, messages[].content): "
            "use tokmill sft; tokmill pretrain reads text",
        ),
        (
            {"title": "sums", "question": "how many are they", "answer": "42"},
            "a.jsonl: the records are questions with answers (question, answer): use tokmill sft, "
            "or to pretrain on them as text name all with "
            "--template='{title}\\n{question}\\n{answer}'",
        ),
    ],
)
def test_a_body_is_never_dropped_but_the_fields_are_listed(record, expected):
    assert refused(record, record) == expected


def test_a_single_record_with_a_list_may_be_a_list_of_records():
    message = refused({"version": "1.1", "data": [{"title": "cats", "text": BODY}] * 9})
    assert message.endswith(
        "take the list with --renderer=article "
        "--fields=section_content=text,sections=data, or write its entries as records with "
        "jq -c '.data[]' a.jsonl > NEW_FILE.jsonl"
    )


def test_the_advice_is_what_a_shell_and_the_template_take():
    for key, field in (("it's", "'text=it'\"'\"'s'"), ("a b", "'text=a b'")):
        assert f"--fields={field}" in refused({"x": BODY, key: BODY * 2})
    assert "--template='{b}'" in refused({"Unnamed: 0": BODY, "b": BODY})


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"renderer": "text"}, ("text", "text")),
        ({"renderer": "encyclopedia"}, ("encyclopedia", "text")),
        ({"template": "{title}"}, ("template", "text")),
        ({"fields": ("text=title",)}, ("text", "title")),
        ({"fields": ("sections=body", "title=title")}, ("sections", "text")),
    ],
)
def test_named_fields_are_taken_whatever_they_hold(settings, expected):
    assert is_named(RenderSettings(**settings))
    assert detected({"title": "cats", "content": BODY}, **settings) == expected


@pytest.mark.parametrize(
    "beside",
    [
        {"comments": [{"user": "ann", "text": "so do mine"}]},
        {"prompt": "", "response": ""},
        {"question": "when do they hunt", "answer": "at night"},
    ],
)
def test_a_text_is_taken_though_chats_or_answers_stand_beside_it(beside):
    assert detected({"text": BODY, **beside}) == ("text", "text")


def test_a_text_that_is_json_is_not_left_for_its_title():
    assert detected({"title": "a list of cats", "text": json.dumps([BODY])}) == ("text", "text")


def test_categories_are_no_text():
    records = [{"text": f"tweet number {i} of many", "topic": "sports and games"} for i in range(9)]
    found = detect(RenderSettings(), sampled(*records), "a.jsonl")
    assert (found.renderer, found.text_field) == ("text", "text")
    assert template_option(sampled(*records), "text") == ""


def test_no_field_is_named_by_its_place():
    message = refused({"Unnamed: 0": "0", "title": BODY, "body": BODY * 3})
    assert message.endswith("or one with --renderer=text --fields=text=body")
    assert re.search(r"--template='\{title\}\\n\{body\}'", message)
