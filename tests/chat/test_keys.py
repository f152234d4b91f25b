from __future__ import annotations

import pytest

from tokmill.chat.keys import (
    is_filled,
    meaningful_keys,
    takes_refusal,
    unread_keys,
)

PAIR = {"question": "q", "answer": "a"}


@pytest.mark.parametrize(("value", "filled"), [(None, False), ("", False), ([], False), (0, True)])
def test_null_empty_text_and_empty_list_say_nothing(value, filled):
    assert is_filled(value) is filled
    expected = ("note",) if filled else ()
    assert unread_keys({**PAIR, "note": value}, "prompt") == expected


@pytest.mark.parametrize(
    ("record", "schema", "unread"),
    [
        (PAIR, "prompt", ()),
        ({**PAIR, "url": "u", "id": 0}, "prompt", ("id", "url")),
        ({**PAIR, "context": "c", "system_prompt": "s", "thinking": "t"}, "prompt", ()),
        ({**PAIR, "context": "c", "input": "i"}, "prompt", ("context",)),
        ({**PAIR, "response": "", "output": "o"}, "prompt", ("output",)),
        ({"prompt": "p", "instruction": "i", "input": "x", "output": "o"}, "prompt",
         ("input", "instruction")),
        ({"instruction": "i", "input": "x", "output": "o", "label": "class"}, "alpaca", ("label",)),
        ({"messages": [], "system": "s", "history": [["a", "b"]], "weight": 0}, "messages", ()),
        ({"messages": [1], "prompt": "p"}, "messages", ("prompt",)),
        ({"text": "t", "system": "s"}, "text", ("system",)),
        ({"text": "t", "": "unnamed"}, "text", ("",)),
    ],
)  # fmt: skip
def test_what_a_schema_does_not_read_is_told(record, schema, unread):
    assert unread_keys(record, schema) == unread
    assert meaningful_keys(schema) >= set(record) - set(unread)


def test_a_key_that_is_ignored_is_not_read_and_another_takes_its_place():
    record = {"question": "q", "answer": "a", "input": "i", "context": "c"}
    assert unread_keys(record, "prompt", ("input",)) == ("input",)


def test_a_refusal_is_taken_only_where_nothing_else_is_said():
    assert takes_refusal({"role": "assistant", "content": "", "refusal": "no"})
    assert not takes_refusal({"role": "assistant", "content": "yes", "refusal": "no"})
    assert not takes_refusal({"role": "assistant", "content": None, "refusal": None})
