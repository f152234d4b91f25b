"""Contents, tools and calls of messages, and JSON that is broken."""

from __future__ import annotations

import json

import pytest

from tokmill.chat.conversation import ChatError
from tokmill.chat.names import parse_json
from tokmill.chat.reading.content import Content, read_content
from tokmill.chat.reading.tools import read_calls, read_tools
from tokmill.settings.sft import SftSettings

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
        ([{"type": "text"}, {"type": "text", "text": None, "train": True}, None], Content("")),
        ([{"type": "refusal", "refusal": "no"}], Content("no")),
        ({"type": "text", "text": "a"}, Content("a")),
        ({"type": ["reasoning", "text"], "text": ["r", "a"]}, Content("a", "r")),
        ({"type": [], "text": []}, Content("")),
        ({"type": None, "text": None}, Content("")),
    ],
)
def test_texts_and_typed_parts_are_joined(value, content):
    assert read_content(value, SETTINGS, "message 1") == content


@pytest.mark.parametrize(
    ("value", "reason", "message"),
    [
        (3, "wrong type", ": expected text or a list of typed parts as content, found 3"),
        ({"text": "a"}, "wrong type", ": expected text or a list of typed parts as content, "
         "found an object with keys text"),
        (["a"], "wrong type", ", part 1: expected an object with type and text, found 'a'"),
        ([{"type": "text", "txt": "a"}], "wrong type", ", part 1: expected text under text, value, "
         "content, found null"),
        ([part("text", 3)], "wrong type", ", part 1: expected text under text, value, content, "
         "found 3"),
        ([part("text", "a"), {"type": "image_url", "image_url": {}}], "unknown content part",
         ", part 2: expected type text, input_text, output_text, refusal, reasoning, thinking, "
         "tool_call, function_call, found 'image_url'"),
        ([{"text": "a"}], "unknown content part", ", part 1: expected type text, input_text, "
         "output_text, refusal, reasoning, thinking, tool_call, function_call, found null"),
        ([part("text", "a"), part("reasoning", "r")], "order of parts",
         ", part 2: expected reasoning, then text, then tool calls, found reasoning behind a later "
         "one; make messages of them"),
        ([{"type": "tool_call", "value": "{}"}], "broken tool call",
         ", part 1: expected a call as value, found none"),
        ([{"type": "tool_call", "value": None}], "broken tool call",
         ", part 1: expected a call as value, found none"),
    ],
)  # fmt: skip
def test_other_contents_are_refused(value, reason, message):
    with pytest.raises(ChatError) as caught:
        read_content(value, SETTINGS, "message 1")
    assert (caught.value.reason, caught.value.message) == (reason, f"message 1{message}")


PARSE, KEEP = SftSettings(), SftSettings(tool_arguments="keep")
BARE = {"name": "f", "description": "d"}
WRAPPED = {"type": "function", "function": BARE}


@pytest.mark.parametrize(
    "value",
    [
        [WRAPPED],
        [BARE],
        BARE,
        json.dumps(WRAPPED),
        [BARE, None],
        json.dumps([BARE]),
        [json.dumps(BARE)],
        [{"function": BARE}],
        [{"type": None, "function": BARE}],
        [{"type": "function", "name": "f", "description": "d"}],
        {"type": ["function"], "function": [BARE]},
        {"name": ["f"], "description": ["d"]},
    ],
)
@pytest.mark.parametrize("key", ["tools", "functions"])
def test_tools_in_any_form_are_wrapped_functions(key, value):
    assert read_tools({key: value}).functions == [WRAPPED]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "tools: expected a list, found 3"),
        (["x"], "tool 1: expected JSON, found 'x': expecting value: line 1 column 1 (char 0)"),
        ([BARE, 3], "tool 2: expected a function with a name, found 3"),
        ([{}], "tool 1: expected a function with a name, found an object with no keys"),
        ([{"name": ""}], "tool 1: expected a function with a name, found an object with keys name"),
        (
            [{"type": "function", "function": {"description": "d"}}],
            "tool 1: expected a function with a name, found an object with keys description",
        ),
        (
            [{"type": "x", "description": "d"}],
            "tool 1: expected a function with a name, found an object with keys type, description",
        ),
    ],
)
def test_broken_tools_say_which_and_how(value, message):
    with pytest.raises(ChatError) as caught:
        read_tools({"tools": value})
    assert (caught.value.reason, caught.value.message) == ("broken tools", message)


@pytest.mark.parametrize(
    "value",
    [
        [CALL],
        CALL,
        json.dumps(CALL),
        json.dumps([CALL]),
        [json.dumps(CALL)],
        [{"name": "f", "arguments": {"x": 1}}],
        [{"name": "f", "arguments": '{"x": 1}'}],
        [{"function": {"arguments": ' {"x": 1}', "name": "f"}, "id": None}],
        [{"type": "function", "name": "f", "arguments": {"x": 1}, "function": None}],
        [{"name": "f", "arguments": [["x", 1]]}],
        [{"name": "f", "arguments": [{"key": "x", "value": 1}]}],
        [[["name", "f"], ["arguments", '{"x": 1}']]],
        [CALL, None],
        {"id": [None], "type": ["function"], "function": [CALL["function"]]},
        {"name": ["f"], "arguments": ['{"x": 1}'], "id": None},
    ],
)
def test_calls_in_any_form_are_canonical(value):
    assert json.dumps(read_calls(value, PARSE, "m")) == json.dumps([CALL])


@pytest.mark.parametrize("value", [None, [], {}, "[]", {"id": [], "function": []}, {"id": None}])
def test_there_may_be_no_calls_in_any_form(value):
    assert read_calls(value, PARSE, "m") == []
    assert read_tools({"tools": value}) == (None, ())


@pytest.mark.parametrize("arguments", ["", " ", "null", "{}", None, {}, []])
def test_a_call_without_arguments_has_an_empty_object(arguments):
    (call,) = read_calls({"name": "f", "arguments": arguments}, PARSE, "m")
    assert call["function"]["arguments"] == {}


def test_arguments_keep_order_and_integers():
    (call,) = read_calls(
        {"name": "f", "arguments": '{"b": 12345678901234567890, "a": []}'}, PARSE, ""
    )
    assert list(call["function"]["arguments"].items()) == [("b", 12345678901234567890), ("a", [])]


@pytest.mark.parametrize("arguments", ['{"x": 1}', "print(1)", "", "[1]"])
def test_arguments_that_are_a_string_are_kept_where_the_settings_say_so(arguments):
    (call,) = read_calls({"name": "f", "arguments": arguments}, KEEP, "m")
    assert call["function"]["arguments"] == arguments


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{", "m: expected JSON, found '{': expecting property name enclosed in double quotes: "
         "line 1 column 2 (char 1)"),
        (3, "m: expected a list of calls, found 3"),
        ([3], "m: expected a function with a name, found 3"),
        ({"arguments": {}}, "m: expected a function with a name, found an object with keys "
         "arguments"),
        ({"name": 1}, "m: expected a function with a name, found an object with keys name"),
        ({"function": "f"}, "m: expected a function with a name, found 'f'"),
        ({"type": "custom", "name": "f"}, "m: expected a function with a name, found an object "
         "with keys type, name"),
        ({"name": "f", "arguments": "{"}, "m: 'f': arguments: expected JSON, found '{': expecting "
         "property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ({"name": "f", "arguments": [1]}, "m: 'f': expected arguments in an object, "
         "found a list of 1"),
        ({"name": "f", "parameters": {}}, "m: 'f': expected arguments, found keys parameters"),
    ],
)  # fmt: skip
def test_broken_calls_say_which_and_how(value, message):
    with pytest.raises(ChatError) as caught:
        read_calls(value, PARSE, "m")
    assert (caught.value.reason, caught.value.message) == ("broken tool call", message)


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 5000])
def test_json_beyond_the_limits_of_the_parser_is_broken_too(text):
    with pytest.raises(ChatError, match=r"^here: expected JSON, found "):
        parse_json(text, "broken thing", "here")


@pytest.mark.parametrize(
    "text",
    [
        r'"\ud83d"', r'"\uDE00"', r'{"\ud800": 1}', r'[{"a": ["\udfff x"]}]', r'"\ude00\ud83d"',
        '"\ud83d"',
    ],
)  # fmt: skip
def test_a_lone_surrogate_anywhere_is_refused(text):
    with pytest.raises(ChatError, match="expected text that can be UTF-8, found '") as caught:
        parse_json(text, "broken thing", "here")
    assert caught.value.reason == "lone surrogate"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"\ud83d\ude00"', "😀"),
        (r'"\uD83D\uDE00"', "😀"),
        (r'"\\ud83d"', "\\ud83d"),
        (r'"\ud7a3"', "힣"),
        ('"猫😀"', "猫😀"),
    ],
)
def test_a_pair_of_surrogates_is_a_character_and_an_escaped_backslash_is_none(text, value):
    assert parse_json(text, "bad", "here") == value
