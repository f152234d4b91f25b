from __future__ import annotations

import pytest
from hypothesis import strategies as st

from tokmill.chat.conversation import ChatError
from tokmill.chat.names import parse_json, shown

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


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


def test_a_message_shows_a_bounded_piece_of_what_was_found_in_one_line():
    assert shown("a\nb" * 30) == "'" + "a\\nb" * 13 + "a'…"
    assert shown({str(i): i for i in range(25)}).endswith("18, 19 and 5 more")
    assert shown({"k" * 50: 1}) == f"an object with keys '{'k' * 40}'…"
    assert shown(None) == "null"
