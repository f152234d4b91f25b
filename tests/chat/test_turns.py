from __future__ import annotations

import json

import pytest

from tokmill.chat.detect import settle_records
from tokmill.chat.schemas import read_conversation
from tokmill.errors import UsageError
from tokmill.settings.schema import SftSettings

SETTINGS = SftSettings()
USER, REPLY = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}


@pytest.mark.parametrize(
    ("record", "fields"),
    [
        ({"dialogue": [{"speaker": "USER", "utterance": "q"}, {"speaker": "Model",
          "utterance": "a"}]}, ("content=utterance", "messages=dialogue", "role=speaker")),
        ({"id": 1, "turns": [{"author": "human", "text": "q", "n": 1}, {"author": "gpt",
          "text": "a", "n": 2}]}, ("content=text", "messages=turns", "role=author")),
        ({"chat": json.dumps([USER, REPLY])}, ("messages=chat",)),
        ({"conversation": [{"human": "q", "assistant": "a"}]}, ("messages=conversation",)),
        ({"messages": [{"role": "user", "text": "q"}, {"role": "assistant", "text": "a"}]},
         ("content=text",)),
    ],
)  # fmt: skip
def test_turns_under_other_names_are_read_where_it_is_plain_who_speaks(record, fields):
    settled = settle_records(SETTINGS, [record, record])
    assert (settled.schema, settled.fields) == ("messages", fields)
    assert read_conversation(record, "messages", settled).messages == [USER, REPLY]


@pytest.mark.parametrize(
    "record",
    [
        {"messages": [USER, REPLY], "turns": [USER, REPLY]},
        {"conversations": [{"from": "human", "value": "q"}]},
        {"messages": [{"human": "q", "assistant": "a"}]},
        {"question": "q", "answer": "a", "turns": [USER]},
        {"text": "t", "turns": [USER]},
    ],
)
def test_what_is_known_already_stays_as_it_is(record):
    assert settle_records(SETTINGS, [record]).fields == ()


@pytest.mark.parametrize(
    "record",
    [
        {"input": [USER], "output": "a"},
        {"prompt": [USER, REPLY, USER], "completion": "a"},
        {"prompt": "q", "completion": [REPLY]},
        {"dialogue": [USER, REPLY], "answer": "a"},
    ],
)
def test_turns_that_are_half_a_sample_are_not_taken_for_all_of_it(record):
    said = ""
    try:
        settled = settle_records(SETTINGS, [record])
    except UsageError as error:
        said = str(error)
    else:
        assert (settled.schema, settled.fields) == ("prompt", ())
    assert "messages=" not in said


@pytest.mark.parametrize("roles", [("prompter", "assistant"), ("user", "assistant"), ("Human",)])
def test_records_that_are_one_message_each_do_not_become_replies(roles):
    records = [{"text": "t", "role": role, "parent_id": "x"} for role in roles]
    with pytest.raises(
        UsageError, match=rf"each record is one message \(role: {roles[0]}"
    ) as caught:
        settle_records(SETTINGS, records)
    assert "--schema text" in str(caught.value)
    assert settle_records(SftSettings(schema="text"), records).schema == "text"
    assert settle_records(SETTINGS, [*records, {"text": "t"}]).schema == "text"


def test_turns_of_user_and_system_alone_are_refused_with_what_to_write():
    turns = [{"speaker": "USER", "utterance": "q"}, {"speaker": "SYSTEM", "utterance": "a"}]
    with pytest.raises(UsageError, match="--role-names system=assistant"):
        settle_records(SETTINGS, [{"turns": turns}])
    named = SftSettings(role_names=("system=assistant",))
    settled = settle_records(named, [{"turns": turns}])
    assert read_conversation({"turns": turns}, "messages", settled).messages == [USER, REPLY]
    system_only = [{"messages": [{"role": "system", "content": "be"}, USER]}]
    assert settle_records(SETTINGS, system_only).schema == "messages"
