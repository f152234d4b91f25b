from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.chat.conversation import ChatError, Conversation
from tokmill.chat.reading.detect import detect_schema
from tokmill.chat.reading.schemas import parse_record, read_conversation
from tokmill.errors import UsageError
from tokmill.settings.sft import SCHEMAS, SftSettings

SETTINGS = SftSettings()
USER, REPLY = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
SYSTEM = {"role": "system", "content": "be"}
DIALOG = Conversation([USER, REPLY], [None, None])
FLAT = Conversation([USER, REPLY], [None, None])
SHAREGPT = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]
EXAMPLES = {
    "messages": ({"messages": [USER, REPLY]}, DIALOG),
    "conversations": ({"conversations": SHAREGPT}, DIALOG),
    "prompt": ({"prompt": "q", "completion": "a"}, FLAT),
    "alpaca": ({"instruction": "q", "input": "", "output": "a"}, FLAT),
    "text": ({"text": "a"}, Conversation([REPLY], [None], is_text=True)),
}


def refusal(record, schema="mixed", settings=SETTINGS):
    with pytest.raises(ChatError) as caught:
        read_conversation(record, schema, settings)
    return caught.value.reason, caught.value.message


@pytest.mark.parametrize("schema", EXAMPLES)
def test_every_schema_is_detected_and_read(schema):
    record, conversation = EXAMPLES[schema]
    assert detect_schema([record, record]) == schema
    assert read_conversation(record, schema, SETTINGS) == conversation
    assert read_conversation(record, "mixed", SETTINGS) == conversation


def test_the_table_has_every_schema_that_a_setting_can_name():
    assert set(SCHEMAS) == {*EXAMPLES, "auto", "mixed"}


def test_a_record_of_no_schema_among_others_is_refused_when_it_is_read():
    assert detect_schema([{"id": 1}, {"text": "t"}, {}]) == "text"
    assert refusal({"id": 1}, "text") == (
        "no such fields",
        "record: expected text, found keys id",
    )
    assert refusal({"id": 1}) == (
        "no such fields",
        "record: expected the fields of a schema, found keys id",
    )


@pytest.mark.parametrize("schema", ["messages", "conversations"])
def test_a_conversation_without_messages_is_refused(schema):
    for empty in ([], "[]"):
        assert refusal({schema: empty, "system": "be"}, schema) == (
            "empty conversation",
            "record: expected messages, found an empty list",
        )
    for missing in ({}, {schema: None}):
        assert refusal({**missing, "id": 1}, schema)[0] == "no such fields"
    assert refusal({schema: ""}, schema)[0] == "no such fields"
    assert refusal({schema: {"role": "user"}}, schema)[0] == "wrong type"
    assert refusal({schema: "hello"}, schema)[0] == "broken messages"


@pytest.mark.parametrize(
    "messages",
    [[REPLY], [REPLY, USER], [USER], [USER, REPLY, REPLY], [USER, USER], [SYSTEM], [USER] * 330],
)
def test_turns_may_come_in_any_order(messages):
    assert read_conversation({"messages": messages}, "messages", SETTINGS) == Conversation(
        messages, [None] * len(messages)
    )


@pytest.mark.parametrize("schema", ["messages", "conversations"])
def test_a_system_text_beside_the_messages_becomes_the_first(schema):
    record = {schema: [USER], "system": "be"}
    assert read_conversation(record, schema, SETTINGS) == Conversation([SYSTEM, USER], [None, None])


@pytest.mark.parametrize(
    ("messages", "system"),
    [
        ([{"role": "system", "content": "mine"}, USER], "be"),
        ([{"role": "developer", "content": "mine"}, USER], "be"),
        ([USER], ""),
        ([USER], None),
    ],
)
def test_a_system_text_beside_the_messages_gives_way_to_their_own(messages, system):
    record = {"messages": messages, "system": system}
    assert read_conversation(record, "messages", SETTINGS).messages == messages


TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    "record",
    [
        {"messages": [USER], "tools": [TOOL]},
        {"messages": [USER], "functions": json.dumps([{"name": "f"}])},
        {"messages": [{**USER, "tools": "[{\"name\": \"f\"}]"}]},
        {"messages": json.dumps([{**USER, "tools": [TOOL]}])},
    ],
)  # fmt: skip
def test_tools_come_from_the_record_or_its_first_message(record):
    assert read_conversation(record, "messages", SETTINGS) == Conversation([USER], [None], [TOOL])


def test_a_conversational_prompt_is_not_trained():
    record = {"prompt": [USER, REPLY, USER], "completion": [REPLY, {**REPLY, "train": False}]}
    assert read_conversation(record, "prompt", SETTINGS) == Conversation(
        [USER, REPLY, USER, REPLY, REPLY], [0.0, 0.0, 0.0, None, 0.0]
    )


def test_everything_is_trained_of_a_conversational_prompt_but_what_it_leaves_out():
    prompt = [USER, {**REPLY, "train": False}, {**REPLY, "train": True}]
    record = {"prompt": prompt, "completion": [REPLY], "system": "be"}
    settings = SftSettings(train=("+everything",))
    assert read_conversation(record, "prompt", settings) == Conversation(
        [SYSTEM, USER, REPLY, REPLY, REPLY], [None, None, 0.0, 1.0, None]
    )


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"prompt": [USER], "completion": []}, Conversation([USER], [0.0])),
        ({"prompt": [], "completion": [REPLY]}, Conversation([REPLY], [None])),
        ({"prompt": None, "completion": [REPLY]}, Conversation([REPLY], [None])),
        ({"prompt": [{**USER, "train": False}], "completion": []}, Conversation([USER], [0.0])),
    ],
)
def test_either_half_of_a_conversational_record_may_be_empty(record, expected):
    assert read_conversation(record, "prompt", SETTINGS) == expected


@pytest.mark.parametrize(
    ("record", "reason", "message"),
    [
        ({"prompt": [], "completion": []}, "empty conversation",
         "record: expected messages, found an empty list"),
        ({"prompt": [USER], "completion": "a"}, "wrong type",
         "completion: expected a list of messages, as the other is one, found 'a'"),
        ({"prompt": "q", "completion": [REPLY]}, "wrong type",
         "prompt: expected a list of messages, as the other is one, found 'q'"),
        ({"prompt": [USER], "completion": None}, "no such fields", "record: expected response or "
         "completion or answer or output, found keys prompt, completion"),
        ({"prompt": [USER, {**REPLY, "train": True}], "completion": [REPLY]},
         "contradictory weights", "prompt message 2: expected no weight in a prompt, which is not "
         "trained, found 1.0"),
        ({"prompt": [USER], "completion": [{"role": "bot", "content": "a"}]}, "unknown role",
         "completion message 1: expected a role of system, developer, user, human, assistant, gpt, "
         "model, chatgpt, bing, bard, tool, function, observation, ipython, function_response, "
         "tool_response, function_call, tool_call, found 'bot': say who that is (NAME=drop "
         "leaves it out): --role-names bot=assistant"),
    ],
)  # fmt: skip
def test_broken_conversational_prompts_are_refused(record, reason, message):
    assert refusal(record, "prompt") == (reason, message)


@pytest.mark.parametrize("schema", EXAMPLES)
def test_a_record_of_weight_0_is_trained_nowhere(schema):
    record, conversation = EXAMPLES[schema]
    for weight in (0, 0.0, False):
        read = read_conversation({**record, "weight": weight}, schema, SETTINGS)
        assert read.weights == [0.0] * len(conversation.messages)
        assert read.messages == conversation.messages
    assert read_conversation({**record, "loss_weight": 1}, schema, SETTINGS) == conversation


@pytest.mark.parametrize(
    ("text", "reason", "message"),
    [
        ("{", "malformed JSON", "record: expected JSON, found '{': expecting property name "
         "enclosed in double quotes: line 1 column 2 (char 1)"),
        ("[1]", "wrong type", "record: expected an object, found a list of 1"),
        ("null", "wrong type", "record: expected an object, found null"),
        (r'{"a": "\ud83d"}', "lone surrogate", r"record: expected text that can be UTF-8, found "
         r"'\ud83d' in it"),
        (r'{"\udc00": 1}', "lone surrogate", r"record: expected text that can be UTF-8, found "
         r"'\udc00' in it"),
    ],
)  # fmt: skip
def test_a_line_that_is_no_object_of_utf8_is_refused(text, reason, message):
    with pytest.raises(ChatError) as caught:
        parse_record(text)
    assert (caught.value.reason, caught.value.message) == (reason, message)


FIELDS = ["messages", "conversations", "prompt", "completion", "instruction", "output", "text"]
VALUES = st.none() | st.text(max_size=3) | st.integers(0, 2) | st.just([]) | st.just([USER, REPLY])
RECORDS = st.dictionaries(
    st.sampled_from([*FIELDS, "input", "history", "system", "tools", "weight", "label", "chosen"]),
    VALUES,
    max_size=5,
)


@given(RECORDS)
def test_every_record_becomes_a_conversation_or_has_a_reason(record):
    for schema in (*EXAMPLES, "mixed"):
        try:
            read = read_conversation(record, schema, SETTINGS)
        except ChatError as error:
            outcome = (bool(error.reason), "\n" not in error.message)
        else:
            outcome = (len(read.messages) > 0, len(read.messages) == len(read.weights))
        assert outcome == (True, True)


@given(RECORDS)
def test_mixed_reads_a_record_as_the_schema_that_is_detected_for_it_alone(record):
    try:
        schema = detect_schema([record])
    except UsageError:
        assert refusal(record)[0] in ("no such fields", "preference data")
        return
    results = []
    for name in (schema, "mixed"):
        try:
            results.append(read_conversation(record, name, SETTINGS))
        except ChatError as error:
            results.append((error.reason, error.message))
    assert results[0] == results[1]


def test_a_record_of_another_schema_says_which_and_what_to_do():
    with pytest.raises(ChatError) as caught:
        read_conversation({"instruction": "a", "output": "b"}, "messages", SftSettings())
    assert caught.value.reason == "no such fields"
    assert caught.value.message == (
        "record: expected messages, found keys instruction, output: a record of schema alpaca "
        "among those of messages: use --schema mixed"
    )


@pytest.mark.parametrize(
    "record", [{"messages": [USER, REPLY]}, {"prompt": [USER], "completion": [REPLY]}]
)
def test_a_history_beside_messages_comes_before_them_and_behind_their_system(record):
    beside = {"history": [["p", "r"]], "system_message": "be"}
    read = read_conversation({**record, **beside}, "mixed", SETTINGS)
    said = [{"role": "user", "content": "p"}, {"role": "assistant", "content": "r"}]
    assert read.messages == [SYSTEM, *said, USER, REPLY]
    trained = [None] * 5 if "messages" in record else [0.0] * 4 + [None]
    assert read.weights == trained


@pytest.mark.parametrize(
    "key", ["tools", "functions", "available_tools", "tool_definitions", "function_definitions"]
)
def test_tools_have_several_names(key):
    record = {"messages": [USER], "tools": [], key: [TOOL]}
    assert read_conversation(record, "messages", SETTINGS).tools == [TOOL]


def test_keys_that_nothing_reads_are_noted_inside_messages_too():
    record = {"messages": [{**USER, "id": 1}, REPLY], "url": "u", "context": "c", "note": None}
    read = read_conversation(record, "messages", SETTINGS)
    assert read.unread == ("context", "messages[].id", "url")
    pair = {"prompt": [USER], "completion": [REPLY], "reasoning": "hm"}
    assert read_conversation(pair, "prompt", SETTINGS).unread == ("reasoning",)


def test_an_ignored_key_is_unread_though_a_field_names_it():
    record = {"prompt": "p", "response": "r", "output": "o", "system": "s"}
    settings = SftSettings(fields=("response=output",), ignore_keys=("output",))
    read = read_conversation(record, "prompt", settings)
    assert (read.messages[-1]["content"], read.unread) == ("r", ("output",))


@pytest.mark.parametrize("where", ["record", "message 1"])
def test_images_are_refused_in_a_record_and_in_a_message(where):
    images = {"images": ["a.png"]}
    record = {"messages": [USER, REPLY], **images}
    if where == "message 1":
        record = {"messages": [{**USER, **images}, REPLY]}
    assert refusal(record, "messages") == (
        "images",
        f"{where}: expected text alone, found images, a list of 1: "
        "--ignore-keys images trains on the text as it stands",
    )
    read = read_conversation(record, "messages", SftSettings(ignore_keys=("images",)))
    assert (read.messages, len(read.unread)) == ([USER, REPLY], 1)


def test_keys_in_parts_of_messages_that_nothing_reads_are_told():
    parts = [{"type": "text", "text": "a", "train": True, "id": 7, "note": None}]
    thoughts = [{"type": "text", "text": "r", "cache": {"n": 1}}]
    reply = {"role": "assistant", "content": parts, "reasoning_content": thoughts, "x": 1}
    asked = {"role": "user", "content": [{"type": "text", "text": "q", "at": 3}]}
    read = read_conversation({"messages": [asked, reply]}, "messages", SETTINGS)
    keys = ("content[].at", "content[].id", "reasoning_content[].cache", "x")
    assert read.unread == tuple(f"messages[].{key}" for key in keys)


@pytest.mark.parametrize("name", ["system", "system_prompt"])
def test_a_system_text_beside_a_system_message_is_told_unless_it_says_the_same(name):
    system = {"role": "system", "content": "s"}
    for text, unread in (("other", (name,)), ("s", ()), ("", ())):
        record = {"messages": [system, USER, REPLY], name: text}
        read = read_conversation(record, "messages", SETTINGS)
        assert (read.messages[0], read.unread) == (system, unread)
    named = SftSettings(fields=("system=sys",))
    record = {"messages": [system, USER, REPLY], "sys": "other"}
    assert read_conversation(record, "messages", named).unread == ("sys",)
