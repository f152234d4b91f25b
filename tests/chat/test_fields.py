from __future__ import annotations

from tokmill.chat.fields import of_message, of_record
from tokmill.chat.schemas import read_conversation
from tokmill.settings.schema import SftSettings

USER, REPLY = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}


def test_a_key_that_is_named_wins_over_the_known_one_where_it_says_something():
    settings = SftSettings(fields=("completion=solution",))
    assert of_record({"solution": "s", "response": "r"}, settings) == {"response": "s"}
    assert of_record({"solution": None, "response": "r"}, settings) == {"response": "r"}
    assert of_record({"response": "r"}, settings) == {"response": "r"}


def test_keys_of_messages_and_of_records_are_named_apart():
    settings = SftSettings(fields=("content=text", "role=who"))
    assert of_record({"text": "t", "who": "w"}, settings) == {"text": "t", "who": "w"}
    assert of_message({"text": "t", "who": "w"}, settings) == {"content": "t", "role": "w"}


def test_keys_that_are_ignored_are_not_there():
    settings = SftSettings(ignore_keys=("label",))
    assert of_record({"label": 1, "text": "t"}, settings) == {"text": "t"}
    assert of_message({"label": 1, "role": "user"}, settings) == {"role": "user"}


def test_records_are_read_under_the_names_given():
    fields = ("content=utterance", "messages=dialogue", "role=speaker", "system=persona")
    settings = SftSettings(fields=fields, role_names=("agent=assistant", "client=user"))
    turns = [{"speaker": "Client", "utterance": "q"}, {"speaker": "AGENT", "utterance": "a"}]
    read = read_conversation({"dialogue": turns, "persona": "be"}, "messages", settings)
    assert read.messages == [{"role": "system", "content": "be"}, USER, REPLY]
    flat = SftSettings(fields=("completion=Response", "prompt=Question", "reasoning=Complex_CoT"))
    record = {"Question": "q", "Complex_CoT": "hm", "Response": "a"}
    read = read_conversation(record, "prompt", flat)
    assert read.messages == [USER, {**REPLY, "reasoning_content": "hm"}]
