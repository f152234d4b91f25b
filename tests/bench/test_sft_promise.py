"""What a conversation trains, in words, and the counts of what samples decode to."""

from __future__ import annotations

import json

import pytest

from bench.sft_ours import read_data
from bench.sft_promise import begins_trained, count, expected
from bench.sft_values import Case
from tokmill.chat.conversation import Conversation
from tokmill.settings.sft import SftSettings

CALL = {"type": "function", "function": {"name": "f", "arguments": {"a": "é"}}}


def chat(*turns, weights=None):
    messages = [{"role": role, "content": content, **more} for role, content, more in turns]
    return Conversation(messages, weights or [None] * len(messages))


def test_replies_and_their_ends_are_trained():
    conversation = chat(("user", "q", {}), ("assistant", " a", {}), ("assistant", "b", {}))
    assert expected(conversation, "plain", "<e>") == " a<e>b<e>"


def test_a_record_s_own_weights_win():
    turns = ("user", "q", {}), ("assistant", "a", {}), ("assistant", "b", {})
    assert expected(chat(*turns, weights=[1.0, 0.0, None]), "plain", "<e>") == "q<e>b<e>"


def test_calls_stand_behind_the_text_in_their_tags():
    conversation = chat(("assistant", "x", {"tool_calls": [CALL, CALL]}))
    call = '\n<tool_call>\n{"name": "f", "arguments": {"a": "é"}}\n</tool_call>'
    assert expected(conversation, "chatml", "<e>") == f"x{call}{call}<e>"


@pytest.mark.parametrize(
    ("turns", "begins"),
    [
        ([("assistant", "a", {})], True),
        ([("user", "", {}), ("assistant", "a", {})], True),
        ([("user", "q", {}), ("assistant", "a", {})], False),
        ([("user", "", {})], False),
    ],
)
def test_a_sample_begins_trained_where_nothing_comes_before_the_reply(turns, begins):
    assert begins_trained(chat(*turns), "plain") is begins
    assert not begins_trained(chat(*turns), "alpaca")


def test_samples_are_decoded_and_counted(tokenizer_dir, tmp_path):
    path = tmp_path / "in.jsonl"
    rows = [
        [("user", "hello"), ("assistant", " 猫 there 👍")],
        [("assistant", "first"), ("user", "hello")],
        [("user", "hello"), ("tool", "x"), ("assistant", "y")],
    ]
    path.write_text(
        "\n".join(
            json.dumps({"messages": [{"role": role, "content": text} for role, text in row]})
            for row in rows
        )
    )
    for template, equal, but_first, refused in (("plain", 2, 1, 0), ("alpaca", 2, 0, 1)):
        case = Case(tokenizer_dir, SftSettings(template=template), template, "<eos>")
        counts = count(case, [read_data(path, 0)])
        found = (counts.equal, counts.but_first, counts.refused, counts.different, counts.first)
        assert found == (equal, but_first, refused, 0, "")
