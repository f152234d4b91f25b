from __future__ import annotations

import json

import pytest

from tokmill.chat.beside import context_of, history_of, reasoning_of, system_of
from tokmill.chat.conversation import ChatError
from tokmill.settings.schema import SftSettings

SETTINGS = SftSettings()
USER, REPLY = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}


@pytest.mark.parametrize("key", ["system", "system_prompt", "system_message"])
def test_a_system_message_has_several_names(key):
    assert system_of({key: "be"}) == [{"role": "system", "content": "be"}]
    assert system_of({"system": "", key: "be"} if key != "system" else {key: ""}) == (
        [{"role": "system", "content": "be"}] if key != "system" else []
    )


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content", "thinking"])
def test_reasoning_beside_an_answer_is_that_of_the_reply(key):
    assert reasoning_of({key: "hm"}) == {"reasoning_content": "hm"}
    assert reasoning_of({key: ""}) == {}


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([["q", "a"]], ([USER, REPLY], [None, None])),
        (json.dumps([["q", "a"]]), ([USER, REPLY], [None, None])),
        ([USER, {**REPLY, "weight": 0}], ([USER, REPLY], [None, 0.0])),
        ([], ([], [])),
        ("", ([], [])),
    ],
)
def test_a_history_is_pairs_or_messages(history, expected):
    assert history_of({"history": history}, SETTINGS) == expected


@pytest.mark.parametrize(
    ("read", "record"),
    [
        (context_of, {"context": ["a", "b"]}),
        (reasoning_of, {"reasoning": True}),
        (lambda record: history_of(record, SETTINGS), {"history": 3}),
    ],
)
def test_a_value_of_another_type_names_the_option_that_leaves_it_out(read, record):
    (key,) = record
    with pytest.raises(ChatError, match=f": --ignore-keys {key} leaves it out$") as caught:
        read(record)
    assert caught.value.reason == "wrong type"


def test_a_text_on_history_is_no_list_of_turns_and_the_option_is_named():
    with pytest.raises(ChatError, match=r": --ignore-keys history leaves it out$") as caught:
        history_of({"history": "of Europe"}, SETTINGS)
    assert caught.value.reason == "broken history"
