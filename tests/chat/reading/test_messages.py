from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.chat.conversation import ChatError
from tokmill.chat.reading.messages import message_list, pair_in, read_messages
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
        ("function", "tool"), ("observation", "tool"), ("ipython", "tool"),
        ("function_response", "tool"),
        ("tool_response", "tool"),
    ],
)  # fmt: skip
def test_every_name_of_a_role_is_known_in_both_forms(said, role):
    plain = ([{"role": role, "content": "x"}], [None])
    assert read({"role": said, "content": "x"}) == plain
    assert read({"from": said, "value": "x"}) == plain
    assert read({"from": said, "value": "x", "id": 7}) == plain
    assert read({"role": None, "from": said, "content": None, "value": "x"}) == plain


@pytest.mark.parametrize(
    ("said", "reason", "found"),
    [
        (
            "narrator",
            "unknown role",
            "'narrator': say who that is (NAME=drop leaves it out): --role-names "
            "narrator=assistant",
        ),
        ("", "unknown role", "''"),
        (None, "unknown role", "null"),
    ],
)
def test_an_unknown_role_is_an_error_and_never_a_guess(said, reason, found):
    assert refusal({"role": "user", "content": "x"}, {"role": said, "content": "x"}) == (
        reason,
        "message 2: expected a role of system, developer, user, human, assistant, gpt, model, "
        "chatgpt, bing, bard, tool, function, observation, ipython, function_response, "
        f"tool_response, function_call, tool_call, found {found}",
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
        ({"from": "tool", "value": {"a": 1}}, "message 1: expected text or a list of typed parts "
         "as content, found an object with keys a"),
        ({"role": "tool", "content": "x", "name": 3}, "message 1: name: expected text, found 3"),
        ({"role": "assistant", "content": "x", "reasoning": 3}, "message 1: reasoning: expected "
         "text or a list of typed parts as content, found 3"),
    ],
)  # fmt: skip
def test_values_of_another_type_are_refused(item, message):
    assert refusal(item) == ("wrong type", message)


def test_content_under_another_name_is_not_lost_in_silence():
    assert refusal({"role": "user", "said": "x"}) == (
        "no such fields",
        "message 1: expected content, found keys role, said",
    )


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
    "fields",
    [
        {"content": None, "tool_calls": [CALL]},
        {"tool_calls": [CALL]},
        {"content": "", "tool_calls": json.dumps([CALL])},
        {"content": "", "tool_calls": [{"name": "f", "arguments": '{"x": 1}'}]},
        {"content": None, "function_call": {"name": "f", "arguments": '{"x": 1}'}},
        {"content": None, "function_call": {"name": "f", "arguments": {"x": 1}}, "tool_calls": []},
        {"content": None, "function_call": None, "tool_calls": [CALL]},
    ],
)
def test_calls_of_the_assistant_are_canonical(fields):
    messages, _ = read({"role": "assistant", **fields})
    assert messages == [{"role": "assistant", "content": "", "tool_calls": [CALL]}]


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


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("f(1)", "expected JSON, found 'f(1)': expecting value: line 1 column 1 (char 0)"),
        ("[]", "expected a call, found '[]'"),
        (None, "expected a call, found null"),
    ],
)
def test_a_broken_function_call_is_refused(value, found):
    assert refusal({"from": "human", "value": "x"}, {"from": "function_call", "value": value}) == (
        "broken tool call",
        f"message 2: {found}",
    )


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


def test_names_are_kept_and_other_keys_are_not():
    item = {"role": "tool", "content": "x", "name": "f", "tool_call_id": "c1", "date": "today"}
    messages, _ = read(item, {**item, "name": None, "tool_call_id": None})
    assert messages == [
        {"role": "tool", "content": "x", "name": "f", "tool_call_id": "c1"},
        {"role": "tool", "content": "x"},
    ]


def test_switches_of_messages_become_their_weights():
    said = {"role": "assistant", "content": "a"}
    assert read(
        said, {**said, "train": False}, {**said, "weight": 1}, {**said, "masked": None}
    ) == (
        [said] * 4,
        [None, 0.0, 1.0, None],
    )


@pytest.mark.parametrize(
    ("value", "reason", "message"),
    [
        ("hi", "broken messages", "messages: expected JSON, found 'hi': expecting value: line 1 "
         "column 1 (char 0)"),
        ("{}", "wrong type", "messages: expected a list of messages, found an object with no keys"),
        (3, "wrong type", "messages: expected a list of messages, found 3"),
        ("", "no such fields", "messages: expected a list of messages, found nothing"),
    ],
)  # fmt: skip
def test_what_is_no_list_of_messages_is_refused(value, reason, message):
    with pytest.raises(ChatError) as caught:
        message_list(value, "messages")
    assert (caught.value.reason, caught.value.message) == (reason, message)


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
    assert read(answered) == ([{"role": "assistant", "content": "Yes."}], [None])


def test_keys_that_are_ignored_are_taken_as_not_there():
    settings = SftSettings(ignore_keys=("refusal", "reasoning"))
    item = {"role": "assistant", "content": "", "refusal": "no", "reasoning": ["x"]}
    assert read(item, settings=settings) == ([{"role": "assistant", "content": ""}], [None])


@pytest.mark.parametrize(("number", "role"), [(1, "user"), (2, "assistant")])
def test_who_speaks_first_under_an_unknown_name_is_advised_as_the_user(number, role):
    turns = [{"role": "user", "content": "q"}] * (number - 1) + [{"role": "x", "content": "t"}]
    reason, message = refusal(*turns)
    assert reason == "unknown role"
    assert message.endswith(f": say who that is (NAME=drop leaves it out): --role-names x={role}")


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


def test_a_system_text_stands_before_its_pair():
    found = pair_in({"output": "a", "input": "q", "system": "be"}, SETTINGS)
    assert found == [{"role": "system", "content": "be"}, USER, REPLY]


def test_a_key_that_is_ignored_in_a_pair_is_unread_and_no_other():
    settings = SftSettings(ignore_keys=("id",))
    turns = read_messages([{"human": "q", "assistant": "a", "id": 7}], settings)
    assert (turns.messages, turns.unread) == ([USER, REPLY], {"id"})
