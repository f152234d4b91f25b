from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.chat.conversation import ChatError
from tokmill.chat.reading.values import first_present, parse_json, parsed, shown, text_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON, st.booleans())
def test_what_json_wrote_is_read_back(value, is_ascii):
    assert parse_json(json.dumps(value, ensure_ascii=is_ascii), "bad", "here") == value


def test_integers_of_any_size_are_exact():
    assert parse_json("123456789012345678901234567890", "bad", "here") == int("1234567890" * 3)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{", "'{': expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("", "'': expecting value: line 1 column 1 (char 0)"),
        ("x" * 50, f"'{'x' * 40}'…: expecting value: line 1 column 1 (char 0)"),
    ],
)
def test_broken_json_has_the_reason_asked_for(text, found):
    with pytest.raises(ChatError) as caught:
        parse_json(text, "broken thing", "here")
    assert caught.value.reason == "broken thing"
    assert caught.value.message == f"here: expected JSON, found {found}"


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 5000])
def test_json_beyond_the_limits_of_the_parser_is_broken_too(text):
    with pytest.raises(ChatError, match=r"^here: expected JSON, found "):
        parse_json(text, "broken thing", "here")


@pytest.mark.parametrize(
    "text",
    [
        r'"\ud83d"', r'"\uDE00"', r'{"\ud800": 1}', r'[{"a": ["\udfff x"]}]', r'"\ude00\ud83d"',
        '"\ud83d"',
    ],
)  # fmt: skip
def test_a_lone_surrogate_anywhere_is_refused(text):
    with pytest.raises(ChatError, match="expected text that can be UTF-8, found '") as caught:
        parse_json(text, "broken thing", "here")
    assert caught.value.reason == "lone surrogate"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"\ud83d\ude00"', "😀"),
        (r'"\uD83D\uDE00"', "😀"),
        (r'"\\ud83d"', "\\ud83d"),
        (r'"\ud7a3"', "힣"),
        ('"猫😀"', "猫😀"),
    ],
)
def test_a_pair_of_surrogates_is_a_character_and_an_escaped_backslash_is_none(text, value):
    assert parse_json(text, "bad", "here") == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [("[1]", [1]), ([1], [1]), ("", None), (" \n", None), ("null", None), (None, None), (1, 1)],
)
def test_a_value_may_stand_as_json_text_of_itself(value, expected):
    assert parsed(value, "bad", "here") == expected


@pytest.mark.parametrize(
    ("record", "expected"),
    [({"a": None, "b": ""}, ""), ({"b": 1, "a": 2}, 2), ({}, None), ({"c": 1}, None)],
)
def test_the_first_value_that_is_not_null_is_found(record, expected):
    assert first_present(record, ("a", "b")) == expected


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (1, "1"),
        (1.5, "1.5"),
        (True, "true"),
        (["a", "b"], "a list of 2"),
        ({}, "an object with no keys"),
        ({"a": 1, "b\n": 2}, "an object with keys a, 'b\\n'"),
    ],
)
def test_a_text_of_another_type_is_refused(value, found):
    with pytest.raises(ChatError) as caught:
        text_of(value, "prompt")
    assert (caught.value.reason, caught.value.message) == (
        "wrong type",
        f"prompt: expected text, found {found}",
    )


def test_null_is_an_empty_text():
    assert (text_of(None, "a"), text_of("", "a"), text_of(" x", "a")) == ("", "", " x")


def test_a_message_shows_a_bounded_piece_of_what_was_found_in_one_line():
    assert shown("a\nb" * 30) == "'" + "a\\nb" * 13 + "a'…"
    assert shown({str(i): i for i in range(25)}).endswith("18, 19 and 5 more")
    assert shown({"k" * 50: 1}) == f"an object with keys '{'k' * 40}'…"
    assert shown(None) == "null"
