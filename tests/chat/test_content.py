from __future__ import annotations

import pytest

from tokmill.chat.content import Content, read_content
from tokmill.chat.conversation import ChatError
from tokmill.settings.schema import SftSettings

SETTINGS = SftSettings()
CALL = {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}


def part(kind, text):
    return {"type": kind, "text": text}


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("hi", Content("hi")),
        ("", Content("")),
        (None, Content("")),
        ([], Content("")),
        ([part("text", "a"), part("text", " b")], Content("a b")),
        ([part("input_text", "a"), part("output_text", "b")], Content("ab")),
        ([{"type": "text", "value": "a"}, {"type": "text", "content": "b"}], Content("ab")),
        ([{"type": "text", "text": None, "value": "a", "image": None}], Content("a")),
        ([part("reasoning", "r"), part("text", "a")], Content("a", "r")),
        ([part("thinking", "r"), part("reasoning", "s")], Content("", "rs")),
        ([{"type": "thinking", "thinking": "r"}, part("text", "a")], Content("a", "r")),
        ([part("reasoning", "")], Content("", "")),
    ],
)
def test_texts_and_typed_parts_are_joined(value, content):
    assert read_content(value, SETTINGS, "message 1") == content


@pytest.mark.parametrize("kind", ["tool_call", "function_call"])
@pytest.mark.parametrize(
    "value", ['{"name": "f", "arguments": {"x": 1}}', {"name": "f", "arguments": '{"x": 1}'}, CALL]
)
def test_parts_that_are_calls_are_read_as_such(kind, value):
    parts = [part("text", "a"), {"type": kind, "value": value}, {"type": kind, "value": value}]
    assert read_content(parts, SETTINGS, "message 1") == Content("a", None, (CALL, CALL))


@pytest.mark.parametrize(
    ("value", "reason", "message"),
    [
        (3, "wrong type", ": expected text or a list of typed parts as content, found 3"),
        (True, "wrong type", ": expected text or a list of typed parts as content, found true"),
        ({"text": "a"}, "wrong type", ": expected text or a list of typed parts as content, "
         "found an object with keys text"),
        (["a"], "wrong type", ", part 1: expected an object with type and text, found 'a'"),
        ([part("text", 3)], "wrong type", ", part 1: expected text under text, value, content, "
         "found 3"),
        ([{"type": "text"}], "wrong type", ", part 1: expected text under text, value, content, "
         "found null"),
        ([part("text", "a"), {"type": "image_url", "image_url": {}}], "unknown content part",
         ", part 2: expected type text, input_text, output_text, reasoning, thinking, tool_call, "
         "function_call, found 'image_url'"),
        ([{"text": "a"}], "unknown content part", ", part 1: expected type text, input_text, "
         "output_text, reasoning, thinking, tool_call, function_call, found null"),
        ([{"type": ["text"]}], "unknown content part", ", part 1: expected type text, input_text, "
         "output_text, reasoning, thinking, tool_call, function_call, found a list of 1"),
        ([part("text", "a"), part("reasoning", "r")], "order of parts",
         ", part 2: expected reasoning, then text, then tool calls, found reasoning behind a later "
         "one; make messages of them"),
        ([{"type": "tool_call", "value": "{}"}], "broken tool call",
         ", part 1: expected a call with a name, found an object with no keys"),
        ([{"type": "tool_call", "value": None}], "broken tool call",
         ", part 1: expected a call as value, found none"),
    ],
)  # fmt: skip
def test_other_contents_are_refused(value, reason, message):
    with pytest.raises(ChatError) as caught:
        read_content(value, SETTINGS, "message 1")
    assert (caught.value.reason, caught.value.message) == (reason, f"message 1{message}")


def test_text_behind_a_call_is_refused_as_no_template_writes_it_there():
    parts = [{"type": "tool_call", "value": CALL}, part("text", "a")]
    with pytest.raises(ChatError) as caught:
        read_content(parts, SETTINGS, "message 1")
    assert caught.value.reason == "order of parts"
