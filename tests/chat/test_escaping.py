from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.chat.control_strings import control_pattern
from tokmill.chat.conversation import ChatError
from tokmill.chat.escaping import ControlEscaper, escaped_forms

MARKS = ("\ue000", "\ue001", "\ue002")


def escaped(control, value, reserved=""):
    escaper = ControlEscaper(control, reserved, parse=False)
    return (None, escaper.marks) if escaper.is_clean(value) else escaper.escaped(value)


def test_text_without_control_strings_is_clean():
    assert escaped(["<e>"], [{"role": "user", "content": "a < e > é猫😀"}, None, 1]) == (
        None,
        MARKS,
    )


def test_a_separator_stands_behind_the_first_character_of_every_control_string():
    value = [{"content": "a<e><e>b", "calls": [{"<e>": ["x", 1, None, "<e>"]}]}]
    copy = [{"content": "a<|e><|e>b", "calls": [{"<|e>": ["x", 1, None, "<|e>"]}]}]
    found, marks = escaped(["<e>"], value)
    assert marks == MARKS
    assert repr(found).replace(repr(MARKS[2])[1:-1], "|") == repr(copy)


def test_strings_that_overlap_are_all_escaped():
    found, _ = escaped(["ab", "ba"], "aba")
    assert found == "a\ue002b\ue002a"


def test_with_parse_control_strings_are_left_as_they_are():
    assert ControlEscaper(["<e>"], "", parse=True).is_clean("<e>")
    assert not ControlEscaper(["<e>"], "", parse=True).is_clean("\ue000<e>")


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("\ue000", ("\ue001", "\ue002", "\ue003")),
        ("\ue001<e>\ue003", ("\ue000", "\ue002", "\ue004")),
        ("<e>\\ue002", ("\ue000", "\ue001", "\ue003")),
        ("<e>%EE%80%80", ("\ue001", "\ue002", "\ue003")),
    ],
)
def test_marks_are_characters_that_the_text_does_not_hold_not_even_escaped(text, marks):
    assert escaped(["<e>"], text)[1] == marks


def test_marks_are_none_that_the_template_writes_itself():
    assert ControlEscaper(["<\ue000>"], "\ue002", parse=False).marks == (
        "\ue001",
        "\ue003",
        "\ue004",
    )


def test_text_that_holds_the_whole_private_use_area_is_refused():
    with pytest.raises(ChatError) as error:
        escaped([], "".join(map(chr, range(0xE000, 0xF900))))
    assert error.value.reason == "private-use characters"


def test_a_control_token_of_one_character_in_text_is_refused():
    with pytest.raises(ChatError, match="the control token '§' stands in a text"):
        escaped(["§"], ["a§b"])


def test_escaped_forms_are_those_of_json_and_of_addresses():
    assert escaped_forms("\ue002") == ("\\ue002", "%EE%80%82")


@given(st.lists(st.text("ab<", min_size=2, max_size=4), min_size=1), st.text("ab<", max_size=12))
def test_no_control_string_is_left_in_escaped_text_and_nothing_is_lost(strings, text):
    escaper = ControlEscaper(strings, "", parse=False)
    found, marks = escaper.escaped(text)
    assert not re.search(control_pattern(strings), found)
    assert found.replace(marks[2], "") == text
    assert escaper.is_clean(text) == (found == text)
