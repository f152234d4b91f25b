"""Chats as agents and servers keep them become the messages that templates expect."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.chat.conversation import ChatError
from tokmill.chat.reading.schemas import read_conversation
from tokmill.settings.sft import SftSettings

SETTINGS = SftSettings()
USER, REPLY = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "w", "parameters": PARAMETERS}}


def call(name, arguments, id_=None):
    own = {} if id_ is None else {"id": id_}
    return {**own, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(content, name, id_=None):
    own = {} if id_ is None else {"tool_call_id": id_}
    return {"role": "tool", "content": content, **own, "name": name}


CHAT = [
    {"role": "system", "content": "be kind"},
    USER,
    {
        "role": "assistant",
        "content": "I look.",
        "reasoning_content": "two cities",
        "tool_calls": [call("w", {"city": "P"}, "c1"), call("w", {}, "c2")],
    },
    result("warm", "w", "c1"),
    result('{"t": 3}', "w", "c2"),
    REPLY,
    USER,
    REPLY,
]
ANTHROPIC = {
    "system": [{"type": "text", "text": "be "}, {"type": "text", "text": "kind"}],
    "tools": [{"name": "w", "input_schema": PARAMETERS, "cache_control": {"type": "ephemeral"}}],
    "messages": [
        USER,
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "two cities", "signature": "x"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c1", "name": "w", "input": {"city": "P"}},
                {"type": "tool_use", "id": "c2", "name": "w", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c2",
                    "content": [{"type": "text", "text": '{"t": 3}'}],
                },
                {"type": "tool_result", "tool_use_id": "c1", "content": "warm"},
            ],
        },
        REPLY,
        {"role": "user", "content": [{"type": "text", "text": "q"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "a"}]},
    ],
}
RESPONSES = {
    "instructions": "be kind",
    "tools": [{"type": "function", "name": "w", "parameters": PARAMETERS}],
    "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "q"}]},
        {"type": "reasoning", "id": "r", "summary": [{"text": "two cities"}]},
        {
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
        },
        {"type": "function_call", "call_id": "c1", "name": "w", "arguments": '{"city": "P"}'},
        {"type": "function_call", "call_id": "c2", "name": "w", "arguments": ""},
        {"type": "function_call_output", "call_id": "c2", "output": '{"t": 3}'},
        {"type": "function_call_output", "call_id": "c1", "output": "warm"},
        {"type": "message", "role": "assistant", "content": "a"},
        USER,
    ],
    "output": [{"type": "message", "role": "assistant",
                "content": [{"type": "output_text", "text": "a"}]}],
}  # fmt: skip
GEMINI = {
    "systemInstruction": {"parts": [{"text": "be "}, {"text": "kind"}]},
    "tools": [
        {
            "functionDeclarations": [
                {
                    "name": "w",
                    "parameters": {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}},
                }
            ]
        }
    ],
    "contents": [
        {"role": "user", "parts": [{"text": "q"}]},
        {
            "role": "model",
            "parts": [
                {"text": "two cities", "thought": True},
                {"text": "I look.", "thoughtSignature": "s"},
                {"functionCall": {"id": "c1", "name": "w", "args": {"city": "P"}}},
                {"functionCall": {"id": "c2", "name": "w"}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "c2", "name": "w", "response": {"t": 3}}},
                {"functionResponse": {"id": "c1", "name": "w", "response": "warm"}},
            ],
        },
        {"role": "model", "parts": [{"text": "a"}]},
        {"role": "user", "parts": {"text": "q"}},
        {"role": "model", "parts": ["a"]},
    ],
}


def read(record, settings=SETTINGS):
    return read_conversation(record, "mixed", settings)


def own_keys(messages):
    """Return messages without further keys of their format, which a template may read too."""
    return [{k: v for k, v in m.items() if k not in ("id", "status", "is_error")} for m in messages]


def refusal(record):
    with pytest.raises(ChatError) as caught:
        read(record)
    return caught.value.reason, caught.value.message


def as_json_text(record):
    """Return the record as tables keep it: each list as JSON text."""
    return {key: json.dumps(v) if isinstance(v, list) else v for key, v in record.items()}


@pytest.mark.parametrize("record", [ANTHROPIC, RESPONSES, GEMINI])
@pytest.mark.parametrize("form", [dict, as_json_text])
def test_a_chat_with_calls_is_the_same_in_every_format(record, form):
    record = form(record)
    if isinstance(record.get("system"), str):
        record["system"] = "be kind"
    conversation = read(record)
    assert own_keys(conversation.messages) == CHAT
    assert conversation.tools == [TOOL]
    assert conversation.weights == [None] * len(CHAT)


def test_what_says_nothing_to_a_template_is_unread():
    assert read(ANTHROPIC).unread == ("messages[].content[].signature",)
    assert read(RESPONSES).unread == ("input[].id", "input[].status")
    assert read(GEMINI).unread == ("contents[].parts[].thoughtSignature",)


def assistant(*blocks):
    return {"messages": [USER, {"role": "assistant", "content": list(blocks)}]}


def asked(*blocks):
    used = {"type": "tool_use", "id": "c", "name": "w", "input": {}}
    messages = assistant(used)["messages"]
    return {"messages": [*messages, {"role": "user", "content": list(blocks)}, REPLY]}


def items(*listed):
    return {"input": [USER, *listed]}


def parts(*listed):
    return {"contents": [{"role": "user", "parts": [{"text": "q"}]},
                         {"role": "model", "parts": list(listed)}]}  # fmt: skip


@pytest.mark.parametrize(
    ("record", "name"),
    [
        (assistant({"type": "redacted_thinking", "data": "x"}), "redacted_thinking"),
        (assistant({"type": "server_tool_use", "id": "c", "name": "s", "input": {}}),
         "server_tool_use"),
        (asked({"type": "image", "source": {}}), "image"),
        (asked({"type": "tool_result", "tool_use_id": "c",
                "content": [{"type": "image", "source": {}}]}), "image"),
        (asked({"type": "tool_result", "tool_use_id": "c", "content": [{"type": "hologram"}]}),
         "hologram"),
        (items({"role": "user", "content": [{"type": "input_image", "image_url": "u"}]}),
         "input_image"),
        (items({"type": "function_call", "call_id": "c", "name": "w", "arguments": "{}"},
               {"type": "function_call_output", "call_id": "c",
                "output": [{"type": "input_file", "file_id": "f"}]}), "input_file"),
        (parts({"inlineData": {"mimeType": "image/png", "data": ""}}), "inlineData"),
        (parts({"text": "a", "fileData": {"fileUri": "u"}}), "fileData"),
        (parts({"executableCode": {"code": "1"}}), "executableCode"),
        (parts({"text": "a", "functionCall": {"name": "w"}}), "functionCall"),
    ],
)  # fmt: skip
def test_a_block_that_has_no_place_in_a_chat_is_refused_with_its_name(record, name):
    reason, message = refusal(record)
    assert reason == "unknown content part"
    assert name in message


@pytest.mark.parametrize(
    "kind",
    ["web_search_call", "custom_tool_call", "computer_call", "item_reference", "mcp_call", "new"],
)
def test_an_item_of_another_type_is_refused_with_its_name(kind):
    for beside in ([{"type": "message", **REPLY}], [{"type": "reasoning", "summary": []}]):
        reason, message = refusal(items(*beside, {"type": kind, "id": "x"}))
        assert (reason, kind in message) == ("unknown item", True)


@pytest.mark.parametrize(
    "record",
    [
        asked({"type": "tool_result", "tool_use_id": "other", "content": "x"}),
        items({"type": "function_call_output", "call_id": "c", "output": "x"}),
        {"contents": [{"role": "user", "parts": [{"functionResponse": {"name": "w"}}]}]},
    ],
)
def test_a_result_without_its_call_is_refused(record):
    assert refusal(record)[0] == "result without its call"


def test_results_without_ids_belong_to_the_calls_of_their_name_in_order():
    calls = [{"functionCall": {"name": n, "args": {}}} for n in ("a", "b", "a")]
    results = [{"functionResponse": {"name": n, "response": {"n": i}}}
               for i, n in enumerate(("a", "a", "b"))]  # fmt: skip
    record = parts(*calls)
    record["contents"].append({"role": "function", "parts": results})
    assert read(record).messages[2:] == [
        result('{"n": 0}', "a"),
        result('{"n": 2}', "b"),
        result('{"n": 1}', "a"),
    ]


def test_text_beside_results_is_the_message_of_the_user_behind_them():
    found = {"type": "tool_result", "tool_use_id": "c", "content": "x", "is_error": True}
    conversation = read(asked(found, {"type": "text", "text": "and?"}))
    assert own_keys(conversation.messages)[2:] == [
        result("x", "w", "c"),
        {"role": "user", "content": "and?"},
        REPLY,
    ]
    assert conversation.unread == ("messages[].is_error",)


def test_calls_after_a_result_begin_another_message():
    steps = []
    for i in range(2):
        steps += [
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": f"r{i}"}],
             "summary": []},
            {"type": "function_call", "call_id": f"c{i}", "name": "w", "arguments": "null"},
            {"type": "function_call_output", "call_id": f"c{i}", "output": [
                {"type": "input_text", "text": f"o{i}"}]},
        ]  # fmt: skip
    expected = []
    for i in range(2):
        thought = {"role": "assistant", "content": "", "reasoning_content": f"r{i}"}
        expected += [
            {**thought, "tool_calls": [call("w", {}, f"c{i}")]},
            result(f"o{i}", "w", f"c{i}"),
        ]
    assert read(items(*steps)).messages[1:] == expected
    assert read({"messages": [USER, *steps]}).messages[1:] == expected


def test_several_paragraphs_of_reasoning_stay_apart():
    summary = [{"type": "summary_text", "text": text} for text in ("r", "s")]
    reasoning = [{"type": "reasoning", "summary": summary}, {"type": "reasoning", "content": "t"}]
    empty = {"type": "reasoning", "summary": [], "encrypted_content": "x"}
    conversation = read(items(*reasoning, {"type": "message", **REPLY}))
    assert conversation.messages[1] == {**REPLY, "reasoning_content": "r\n\ns\n\nt"}
    conversation = read(items(empty, {"type": "message", **REPLY}))
    assert conversation.unread == ("input[].encrypted_content",)


def test_two_texts_of_the_assistant_are_two_messages():
    said = {"type": "message", **REPLY}
    assert read(items({"type": "reasoning", "summary": []}, said, said)).messages[1:] == [
        REPLY,
        REPLY,
    ]


@pytest.mark.parametrize(
    "record",
    [
        items({"type": "function_call", "call_id": "c", "name": "w", "arguments": "{}"},
              {"type": "message", **REPLY}),
        assistant({"type": "tool_use", "id": "c", "name": "w", "input": {}},
                  {"type": "text", "text": "a"}),
        parts({"functionCall": {"name": "w"}}, {"text": "a"}),
    ],
)  # fmt: skip
def test_text_behind_calls_is_refused_as_in_other_formats(record):
    assert refusal(record)[0] == "order of parts"


def test_what_a_message_says_beside_its_results_is_not_lost():
    found = {"type": "tool_result", "tool_use_id": "c", "content": "x"}
    record = asked(found)
    record["messages"][2] |= {"train": True, "at": 7}
    assert (read(record).weights[2], read(record).unread) == (1.0, ("messages[].at",))
    record = parts({"functionCall": {"name": "w"}})
    answer = {"functionResponse": {"name": "w", "response": {}}}
    record["contents"].append({"role": "user", "parts": [answer], "train": True, "at": 7})
    assert (read(record).weights[2], read(record).unread) == (1.0, ("contents[].at",))


def test_an_item_with_a_role_of_its_own_keeps_its_call():
    made = {"type": "function_call", "role": "assistant", "call_id": "c", "name": "w",
            "arguments": "{}"}  # fmt: skip
    found = {"type": "function_call_output", "role": "tool", "call_id": "c", "output": "x"}
    assert read(items(made, found)).messages[1:] == [
        {"role": "assistant", "content": "", "tool_calls": [call("w", {}, "c")]},
        result("x", "w", "c"),
    ]


def test_named_roles_and_fields_are_read_among_items():
    settings = SftSettings(role_names=("bot=assistant",), fields=("role=who", "content=said"))
    record = items({"type": "reasoning", "content": "r"}, {"who": "bot", "said": "a"})
    assert read(record, settings).messages[1] == {**REPLY, "reasoning_content": "r"}


def test_thousands_of_calls_are_matched_in_time():
    made = [{"functionCall": {"name": f"f{i}", "args": {}}} for i in range(5_000)]
    found = [{"functionResponse": {"name": f"f{i}", "response": "x"}} for i in range(5_000)]
    record = parts(*made)
    record["contents"].append({"role": "user", "parts": found})
    assert [m["name"] for m in read(record).messages[2:]] == [f"f{i}" for i in range(5_000)]


def test_a_weight_of_a_block_is_kept():
    reply = {"type": "message", **REPLY, "train": False}
    assert read(items({"type": "reasoning", "summary": []}, reply)).weights == [None, 0.0]
    blocks = [{"type": "tool_use", "id": "c", "name": "w", "input": {}, "weight": 0}]
    assert read(assistant(*blocks)).weights == [None, 0.0]
    assert read(parts({"text": "a", "train": False})).weights == [None, 0.0]


def test_named_fields_are_read_in_every_format():
    settings = SftSettings(fields=("messages=talk", "role=who", "content=said"))
    talk = [{"who": item["role"], "said": item["content"]} for item in ANTHROPIC["messages"]]
    record = {**ANTHROPIC, "talk": talk, "messages": None}
    assert read(record, settings).messages == CHAT


@pytest.mark.parametrize(
    "columns",
    [
        {"role": ["user", "assistant"], "content": ["q", "a"]},
        {"from": ["human", "gpt"], "value": ["q", "a"], "weight": None},
        {"role": ["user", "assistant"], "content": ["q", "a"], "tool_calls": [None, None]},
        [[["role", "user"], ["content", "q"]], [["role", "assistant"], ["content", "a"]]],
        [[{"key": "role", "value": r}, {"key": "content", "value": c}]
         for r, c in [("user", "q"), ("assistant", "a")]],
    ],
)  # fmt: skip
@pytest.mark.parametrize("key", ["messages", "conversations"])
def test_messages_may_be_an_object_of_lists_or_maps_of_pairs(columns, key):
    assert read({key: columns}).messages == [USER, REPLY]
    assert read({key: json.dumps(columns)}).messages == [USER, REPLY]


@pytest.mark.parametrize(
    "columns", [{"role": ["user"], "content": ["q", "a"]}, {"role": "user", "content": "q"}, {}]
)
def test_an_object_of_other_values_is_no_list_of_messages(columns):
    assert refusal({"messages": columns})[0] == "wrong type"


@pytest.mark.parametrize("tags", [("<think>\n", "\n</think>\n\n"), ("<think>", "</think>")])
@pytest.mark.parametrize("form", ["function_call", "tool_call"])
def test_reasoning_before_the_json_of_a_call_is_reasoning(tags, form):
    value = f"{tags[0]}hm{tags[1]}" + '{"name": "w", "arguments": {"city": "P"}}'
    chat = [{"from": "human", "value": "q"}, {"from": form, "value": value}]
    assert read({"conversations": chat}).messages[1] == {
        "role": "assistant",
        "content": "",
        "reasoning_content": "hm",
        "tool_calls": [call("w", {"city": "P"})],
    }


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"t": 3, "é": None}, '{"t": 3, "é": null}'),
        ([{"t": 3}, {"type": "PushEvent"}], '[{"t": 3}, {"type": "PushEvent"}]'),
        (["a", 1], '["a", 1]'),
        (7, "7"),
        (False, "false"),
        ([], ""),
        (None, ""),
        ([{"type": "text", "text": "a"}], "a"),
    ],
)
@pytest.mark.parametrize("role", ["tool", "observation", "function"])
def test_what_a_tool_returns_may_be_any_json(content, text, role):
    said = {"role": "tool", "content": text}
    assert read({"messages": [USER, {"role": role, "content": content}]}).messages[1] == said
    assert read({"messages": [USER, {"from": role, "value": content}]}).messages[1] == said


def test_media_in_what_a_tool_returns_are_refused():
    content = [{"type": "image_url", "image_url": {"url": "u"}}]
    assert refusal({"messages": [USER, {"role": "tool", "content": content}]})[0] == (
        "unknown content part"
    )


@pytest.mark.parametrize("images", [[None], [], None, [None, None]])
def test_a_list_of_no_image_is_no_image(images):
    record = {"messages": [{**USER, "images": images}, REPLY], "images": images}
    conversation = read(record)
    assert (conversation.messages, conversation.unread) == ([USER, REPLY], ())


FUNCTION = {"name": "w", "parameters": PARAMETERS}


@pytest.mark.parametrize(
    "tools",
    [
        FUNCTION,
        [FUNCTION],
        {"functionDeclarations": [FUNCTION]},
        [{"function_declarations": [{"name": "w", "parametersJsonSchema": PARAMETERS}]}],
        [{"name": "w", "inputSchema": PARAMETERS}],
        [{"type": "custom", "name": "w", "input_schema": PARAMETERS}],
        [{"type": "function", "function": {"name": "w", "input_schema": PARAMETERS,
                                           "parameters": None}}],
    ],
)  # fmt: skip
@pytest.mark.parametrize("key", ["tools", "tool_defs"])
def test_tools_have_one_form(tools, key):
    for value in (tools, json.dumps(tools)):
        assert read({"messages": [USER, REPLY], key: value}).tools == [TOOL]


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        ({"type": "web_search"}, "web_search"),
        (
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 5},
            "web_search_20250305",
        ),
        ({"type": "code_interpreter", "container": {"type": "auto"}}, "code_interpreter"),
        ({"type": "file_search", "vector_store_ids": ["v"], "function": None}, "file_search"),
        ({"type": "mcp", "server_label": "s", "server_url": "u"}, "mcp"),
        ({"type": "retrieval", "retrieval": {"knowledge_id": "k"}}, "retrieval"),
        ({"type": "builtin_function", "function": {"name": "$web_search"}}, "builtin_function"),
        ({"googleSearch": {}}, "googleSearch"),
        ({"url_context": {}, "functionDeclarations": None}, "url_context"),
    ],
)
@pytest.mark.parametrize("beside", [[], [FUNCTION]])
def test_a_tool_of_the_server_is_an_unread_key(tool, name, beside):
    """The record is a real log, and no template could show such a tool as a function."""
    for tools in ([tool, *beside], json.dumps([*beside, tool])):
        for record in (
            {"messages": [USER, REPLY]},
            {"prompt": "q", "completion": "a"},
            {"prompt": [USER], "completion": [REPLY]},
            {"instruction": "q", "output": [REPLY]},
            {"input": [USER], "output": [REPLY]},
            parts({"text": "a"}),
        ):
            conversation = read({**record, "tools": tools})
            assert conversation.tools == ([TOOL] if beside else None)
            assert conversation.unread == (f"tools[].{name}",)


def test_a_tool_of_the_server_beside_gemini_s_functions_is_an_unread_key():
    tools = [{"functionDeclarations": [FUNCTION], "googleSearch": {}, "codeExecution": {}}]
    conversation = read({**parts({"text": "a"}), "tools": tools})
    assert conversation.tools == [TOOL]
    assert conversation.unread == ("tools[].codeExecution", "tools[].googleSearch")


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "custom", "name": "w", "format": {}},
        {"type": "fuction", "function": FUNCTION},
        {"type": "tool", "name": "w"},
        {"type": "object", "properties": {}},
        {"type": "x", **FUNCTION},
        {"type": 3},
        {"w": {"description": "d"}},
        {"googleSearch": {}, "x": 1},
        {},
    ],
)
def test_what_may_be_a_function_of_the_user_is_refused(tool):
    assert refusal({"messages": [USER, REPLY], "tools": [tool]})[0] == "broken tools"


def test_types_of_a_schema_are_lowered_and_properties_with_such_names_stay():
    properties = {"type": {"type": "STRING", "enum": ["STRING"]},
                  "list": {"type": "ARRAY", "items": {"anyOf": [{"type": "NUMBER"}]}}}  # fmt: skip
    schema = {"type": "OBJECT", "properties": properties, "required": ["type"]}
    declared = [{"functionDeclarations": [{"name": "w", "parameters": schema}]}]
    (tool,) = read({**parts({"text": "a"}), "tools": declared}).tools
    assert tool["function"]["parameters"] == {
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": ["STRING"]},
            "list": {"type": "array", "items": {"anyOf": [{"type": "number"}]}},
        },
        "required": ["type"],
    }


SIMPLE = st.none() | st.booleans() | st.integers(0, 1) | st.sampled_from(["", "c", "user", "{}"])
TYPES = ["text", "thinking", "tool_use", "tool_result", "message", "reasoning", "function_call",
         "function_call_output", "output_text", "new"]  # fmt: skip
KEYS = ["text", "content", "id", "name", "input", "tool_use_id", "call_id", "arguments", "output",
        "summary", "role", "parts", "functionCall", "functionResponse", "thought", "args",
        "response", "train"]  # fmt: skip
OBJECTS = st.recursive(
    SIMPLE,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.builds(
            lambda kind, rest: {**kind, **rest},
            st.fixed_dictionaries({}, optional={"type": st.sampled_from(TYPES)}),
            st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
        )
    ),
    max_leaves=12,
)


@given(
    st.sampled_from(["messages", "contents", "input", "tools", "system", "instructions"]), OBJECTS
)
def test_whatever_stands_in_such_a_record_is_read_or_refused_with_a_reason(key, value):
    records = [{key: value}, {key: [value]}, {"messages": [USER, REPLY], key: value},
               {"contents": [{"role": "user", "parts": value}]},
               {"messages": [USER, {"role": "assistant", "content": [value]}]}]  # fmt: skip
    for record in records:
        for schema in ("mixed", "gemini", "responses"):
            try:
                found = read_conversation(record, schema, SETTINGS)
            except ChatError as error:
                outcome = bool(error.reason), "\n" not in error.message
            else:
                contents = {type(message["content"]) for message in found.messages}
                outcome = contents == {str}, len(found.messages) == len(found.weights)
            assert outcome == (True, True)
