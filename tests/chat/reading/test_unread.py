from __future__ import annotations

import pytest

from tokmill.chat.reading.names import of_record
from tokmill.chat.reading.unread import unread_in_messages, unread_in_record
from tokmill.settings.sft import SftSettings


@pytest.mark.parametrize(
    ("message", "unread"),
    [
        ({"role": "user", "content": "u"}, ()),
        ({"role": "user", "content": "u", "id": 7, "name": "n", "extra": None}, ("m[].id",)),
        ({"role": "assistant", "content": "a", "reasoning_details": [1]},
         ("m[].reasoning_details",)),
        ({"role": "assistant", "content": "a", "refusal": "no"}, ("m[].refusal",)),
        ({"role": "assistant", "content": None, "refusal": "no"}, ()),
        ({"role": "assistant", "content": "", "tool_calls": [1], "refusal": "no"},
         ("m[].refusal",)),
    ],
)  # fmt: skip
def test_keys_inside_messages_are_told_too(message, unread):
    assert unread_in_messages([message], "m", SftSettings()) == unread


def test_keys_are_told_under_the_names_that_the_record_has():
    settings = SftSettings(fields=("content=text", "messages=turns"), ignore_keys=("tag",))
    given = {"turns": [1], "messages": [2], "tag": 1, "url": "u", "note": ""}
    record = of_record(given, settings)
    assert unread_in_record(given, record, "messages", settings) == ("url", "messages", "tag")
    items = [{"role": "user", "text": "t", "id": 1, "tag": 2}]
    assert unread_in_messages(items, "messages", settings) == ("turns[].id", "turns[].tag")


def test_ignored_keys_of_one_run_are_unread_in_no_other():
    items = [{"role": "user", "content": "u", "name": "n"}]
    ignoring = SftSettings(ignore_keys=("name",))
    found = [unread_in_messages(items, "m", one) for one in (SftSettings(), ignoring)]
    assert found == [(), ("m[].name",)]


def test_the_names_of_a_pair_are_read():
    pair = {"system": "be", "human": "q", "assistant": "a"}
    assert unread_in_messages([pair], "messages", SftSettings()) == ()
