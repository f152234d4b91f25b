from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.chat.conversation import ChatError
from tokmill.chat.reading.messages import pair_in, read_messages
from tokmill.chat.segments import ROLES
from tokmill.settings.sft import SftSettings

SETTINGS = SftSettings()
CALL = {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}


def read(*items, settings=SETTINGS):
    return read_messages(items, settings)[:2]


def refusal(*items, settings=SETTINGS):
    with pytest.raises(ChatError) as caught:
        read_messages(items, settings)
    return caught.value.reason, caught.value.message


@pytest.mark.parametrize(
    ("said", "role"),
    [
        ("human", "user"), ("user", "user"), ("gpt", "assistant"), ("assistant", "assistant"),
        ("model", "assistant"), ("chatgpt", "assistant"), ("bing", "assistant"),
        ("bard", "assistant"), ("system", "system"), ("developer", "developer"), ("tool", "tool"),
        ("function", "tool"), ("observation", "tool"), ("ipython", "tool"), ("environment", "tool"),
        ("function_response", "tool"),
        ("tool_response", "tool"),
    ],
)  # fmt: skip
def test_every_name_of_a_role_is_known_in_both_forms(said, role):
    plain = ([{"role": role, "content": "x"}], [None])
    assert read({"role": said, "content": "x"}) == plain
    assert read({"from": said, "value": "x"}) == plain
    more = {"role": role, "content": "x", "id": 7}  # for the template, which may read it
    assert read({"from": said, "value": "x", "id": 7}) == ([more], [None])
    assert read({"role": None, "from": said, "content": None, "value": "x"}) == plain


@pytest.mark.parametrize(
    ("said", "reason", "found"),
    [
        (
            "narrator",
            "unknown role",
            "'narrator': say who that is (tool, user, system, assistant; drop leaves it out): "
            "--role-names narrator=ROLE",
        ),
        ("", "unknown role", "''"),
        (None, "unknown role", "null"),
    ],
)
def test_an_unknown_role_is_an_error_and_never_a_guess(said, reason, found):
    assert refusal({"role": "user", "content": "x"}, {"role": said, "content": "x"}) == (
        reason,
        "message 2: expected a role of system, developer, user, human, assistant, gpt, model, "
        "chatgpt, bing, bard, tool, function, observation, ipython, environment, "
        f"function_response, tool_response, function_call, tool_call, found {found}",
    )


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"role": 1, "content": "x"}, "message 1: expected a role, found 1"),
        ({"role": ["user"], "content": "x"}, "message 1: expected a role, found a list of 1"),
        ("hi", "message 1: expected an object with role and content, found 'hi'"),
        (None, "message 1: expected an object with role and content, found null"),
        (["user", "x"], "message 1: expected an object with role and content, found a list of 2"),
        ({"role": "user", "content": 3}, "message 1: expected text or a list of typed parts as "
         "content, found 3"),
        ({"role": "user", "content": False}, "message 1: expected text or a list of typed parts as "
         "content, found false"),
        ({"from": "gpt", "value": {"a": 1}}, "message 1: expected text or a list of typed parts "
         "as content, found an object with keys a"),
        ({"role": "tool", "content": "x", "name": 3}, "message 1: name: expected text, found 3"),
        ({"role": "assistant", "content": "x", "reasoning": 3}, "message 1: reasoning: expected "
         "text or a list of typed parts as content, found 3"),
    ],
)  # fmt: skip
def test_values_of_another_type_are_refused(item, message):
    assert refusal(item) == ("wrong type", message)


def test_parts_become_text_and_reasoning_and_calls():
    item = {
        "role": "assistant",
        "content": [
            {"type": "reasoning", "value": "hm"},
            {"type": "text", "text": "a"},
            {"type": "tool_call", "value": json.dumps(CALL)},
        ],
    }
    assert read(item) == (
        [{"role": "assistant", "content": "a", "reasoning_content": "hm", "tool_calls": [CALL]}],
        [None],
    )


@pytest.mark.parametrize("key", ["reasoning_content", "thinking", "reasoning"])
def test_reasoning_has_three_names(key):
    item = {"role": "assistant", "content": "a", key: "hm"}
    assert read(item)[0] == [{"role": "assistant", "content": "a", "reasoning_content": "hm"}]
    item["role"] = "user"
    assert refusal(item) == (
        "wrong role",
        "message 1: expected reasoning of the assistant only, found them at role user",
    )


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"reasoning_content": None}, {}),
        ({"reasoning_content": ""}, {"reasoning_content": ""}),
        ({"reasoning_content": "", "thinking": "hm"}, {"reasoning_content": "hm"}),
        ({"reasoning_content": "hm", "reasoning": "hm"}, {"reasoning_content": "hm"}),
        ({"content": None, "thinking": "hm"}, {"content": "", "reasoning_content": "hm"}),
    ],
)
def test_null_reasoning_is_none_and_an_empty_one_is_kept(fields, kept):
    messages, _ = read({"role": "assistant", "content": "a", **fields})
    assert messages == [{"role": "assistant", "content": "a", **kept}]


def test_two_different_reasonings_are_contradictory():
    item = {"role": "assistant", "content": "a", "thinking": "x", "reasoning": "y"}
    assert refusal(item) == (
        "contradictory reasoning",
        "message 1: reasoning: expected the reasoning told before, found 'y'",
    )


@pytest.mark.parametrize(
    "value",
    [
        '{"name": "f", "arguments": {"x": 1}}',
        '[{"name": "f", "arguments": "{\\"x\\": 1}"}]',
        {"name": "f", "arguments": {"x": 1}},
        [{"name": "f", "arguments": {"x": 1}}],
        [json.dumps(CALL)],
    ],
)
def test_the_role_function_call_is_an_assistant_turn_of_calls(value):
    expected = [{"role": "assistant", "content": "", "tool_calls": [CALL]}]
    assert read({"from": "function_call", "value": value})[0] == expected
    assert read({"role": "function_call", "content": value})[0] == expected
    assert read_messages([{"from": "function_call", "value": value}], SETTINGS).unread == set()


def test_calls_belong_to_the_assistant():
    assert refusal({"role": "user", "content": "x", "tool_calls": [CALL]}) == (
        "wrong role",
        "message 1: expected tool calls of the assistant only, found them at role user",
    )
    messages, _ = read({"role": "user", "content": "x", "tool_calls": []})
    assert messages == [{"role": "user", "content": "x"}]


def test_calls_in_two_places_are_refused():
    item = {"role": "assistant", "content": "", "tool_calls": [CALL], "function_call": CALL}
    assert refusal(item) == (
        "broken tool call",
        "message 1: expected calls in one of content, tool_calls, function_call, found several",
    )


ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "user", "{}", "text"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "name", "function", "arguments"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)
KEYS = ["content", "value", "tool_calls", "function_call", "thinking", "weight", "train", "name"]
HOSTILE = st.dictionaries(st.sampled_from([*KEYS, "role"]), ANY, max_size=4) | ANY


@given(st.lists(HOSTILE, max_size=3), st.sampled_from(["user", "assistant", "function_call"]))
def test_whatever_stands_there_is_read_or_refused_with_a_reason(items, role):
    for item in items:
        if isinstance(item, dict):
            item.setdefault("role", role)
    try:
        messages, weights, *_ = read_messages(items, SETTINGS)
    except ChatError as error:
        reason, message = error.reason, error.message
    else:
        assert len(messages) == len(weights) == len(items)
        assert {m["role"] for m in messages} <= set(ROLES)
        assert {type(m["content"]) for m in messages} <= {str}
        return
    assert reason
    assert "\n" not in message


def test_a_refusal_is_the_reply_where_it_says_nothing_else():
    refused = {"role": "assistant", "content": None, "refusal": "I cannot."}
    assert read(refused) == ([{"role": "assistant", "content": "I cannot."}], [None])
    without = {"role": "assistant", "refusal": "I cannot."}
    assert read(without) == read(refused)
    answered = {**refused, "content": "Yes."}
    assert read(answered) == ([answered], [None])


USER, REPLY = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}


@pytest.mark.parametrize(
    "item",
    [
        {"human": "q", "assistant": "a"},
        {"assistant": "a", "Human": "q"},
        {"input": "q", "output": "a"},
        {"question": "q", "answer": "a"},
        {"system": "", "user": "q", "gpt": "a"},
        {"system": None, "user": "q", "gpt": "a"},
    ],
)
def test_a_pair_is_a_question_and_its_answer(item):
    assert pair_in(item, SETTINGS) == [USER, REPLY]
