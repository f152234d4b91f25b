from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tokmill.chat.conversation import ChatError, Conversation
from tokmill.chat.reading.schemas import read_conversation
from tokmill.settings.sft import SftSettings

SETTINGS = SftSettings()


def read_pair(record, settings):
    return read_conversation(record, "prompt", settings)


def read_alpaca(record, settings):
    return read_conversation(record, "alpaca", settings)


def read_text(record, settings):
    return read_conversation(record, "text", settings)


def said(role, content):
    return {"role": role, "content": content}


def flat(*messages, tools=None):
    return Conversation(list(messages), [None] * len(messages), tools)


def refusal(reader, record):
    with pytest.raises(ChatError) as caught:
        reader(record, SETTINGS)
    return caught.value.reason, caught.value.message


@pytest.mark.parametrize("prompt", ["prompt", "question", "query"])
@pytest.mark.parametrize("answer", ["response", "completion", "answer", "output"])
def test_prompt_and_answer_have_several_names(prompt, answer):
    record = {prompt: " q", answer: "a\n"}
    assert read_pair(record, SETTINGS) == flat(said("user", " q"), said("assistant", "a\n"))


@pytest.mark.parametrize("reader", [read_pair, read_alpaca])
def test_a_missing_answer_is_no_sample(reader):
    assert refusal(reader, {"prompt": "q", "instruction": "q", "completion": None}) == (
        "no such fields",
        "record: expected response or completion or answer or output, "
        "found keys prompt, instruction, completion",
    )


@pytest.mark.parametrize(
    ("reader", "record", "message"),
    [
        (read_pair, {"prompt": 3, "answer": "a"}, "prompt: expected text, found 3"),
        (read_pair, {"prompt": "q", "answer": 42}, "answer: expected text, found 42"),
        (read_pair, {"prompt": "q", "answer": "a", "system": 3}, "system: expected text, found 3"),
        (read_alpaca, {"instruction": [], "output": "a"}, "instruction: expected text, found "
         "a list of 0"),
        (read_alpaca, {"instruction": "q", "input": 3, "output": "a"}, "input: expected text, "
         "found 3: --ignore-keys input leaves it out"),
        (read_alpaca, {"instruction": "q", "output": "a", "history": 3}, "history: expected a list "
         "of pairs or messages, found 3: --ignore-keys history leaves it out"),
        (read_alpaca, {"instruction": "q", "output": "a", "history": [["x"]]}, "history, pair 1: "
         "expected a list of a question and its answer, found a list of 1"),
        (read_alpaca, {"instruction": "q", "output": "a", "history": [["x", "y"], ["z", 3]]},
         "history, pair 2: expected text, found 3"),
        (read_text, {"text": ["a"]}, "text: expected text, found a list of 1"),
    ],
)  # fmt: skip
def test_values_of_another_type_are_refused(reader, record, message):
    assert refusal(reader, record) == ("wrong type", message)


@pytest.mark.parametrize(
    ("record", "user"),
    [
        ({"instruction": "do", "input": ""}, "do"),
        ({"instruction": "do"}, "do"),
        ({"instruction": "do", "input": None}, "do"),
        ({"instruction": "do", "input": "it"}, "do\nit"),
        ({"instruction": "do", "context": "it"}, "do\nit"),
        ({"instruction": None, "input": "it"}, "it"),
        ({"instruction": "", "input": ""}, ""),
        ({"instruction": "do", "input": " "}, "do\n "),
    ],
)
def test_an_instruction_and_its_input_are_joined_by_a_newline(record, user):
    assert read_alpaca({**record, "output": "a"}, SETTINGS) == flat(
        said("user", user), said("assistant", "a")
    )


@pytest.mark.parametrize(
    ("instruction", "user"),
    [
        ("newline", said("user", "do\nit")),
        ("blank-line", said("user", "do\n\nit")),
        ("stanford", {**said("user", "do\n\n### Input:\nit"), "with_input": True}),
    ],
)
def test_the_join_of_an_instruction_is_a_setting(instruction, user):
    settings = SftSettings(instruction=instruction)
    record = {"instruction": "do", "input": "it", "output": "a"}
    assert read_alpaca(record, settings).messages == [user, said("assistant", "a")]


def test_a_text_is_one_message_of_the_assistant():
    for text in ("t\n", ""):
        expected = replace(flat(said("assistant", text)), is_text=True)
        assert read_text({"text": text}, SETTINGS) == expected
    assert refusal(read_text, {"text": None, "body": "x"}) == (
        "no such fields",
        "record: expected text, found keys text, body",
    )


def test_a_context_belongs_to_the_prompt_as_an_input_to_its_instruction():
    for name in ("context", "input"):
        record = {"question": "q", name: "c", "answer": "a"}
        assert read_pair(record, SETTINGS) == flat(said("user", "q\nc"), said("assistant", "a"))
    stanford = SftSettings(instruction="stanford")
    user = {**said("user", "q\n\n### Input:\nc"), "with_input": True}
    assert read_pair(record, stanford).messages[0] == user


@pytest.mark.parametrize("reader", [read_pair, read_alpaca])
def test_system_prompt_history_and_reasoning_are_read_beside_an_answer(reader):
    record = {
        "prompt": "q",
        "instruction": "q",
        "output": "a",
        "system_prompt": "be",
        "history": [["p", "r"]],
        "reasoning": "hm",
    }
    assert reader(record, SETTINGS).messages == [
        said("system", "be"),
        said("user", "p"),
        said("assistant", "r"),
        said("user", "q"),
        {**said("assistant", "a"), "reasoning_content": "hm"},
    ]


USER, REPLY = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}


def beside(answer):
    """Return the messages of a question and its answer, and of what stands beside them."""
    return read_pair({"prompt": "q", "answer": "a", **answer}, SETTINGS)


@pytest.mark.parametrize(
    ("history", "weights"),
    [
        ([["q", "a"]], [None, None]),
        (json.dumps([["q", "a"]]), [None, None]),
        ([USER, {**REPLY, "weight": 0}], [None, 0.0]),
        ([], []),
        ("", []),
    ],
)
def test_a_history_is_pairs_or_messages(history, weights):
    read = beside({"history": history})
    assert read.messages == [USER, REPLY] * (1 + bool(weights))
    assert read.weights == [*weights, None, None]
