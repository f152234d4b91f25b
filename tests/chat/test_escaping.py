from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.chat.control_strings import control_pattern
from tokmill.chat.conversation import ChatError
from tokmill.chat.escaping import ControlEscaper


def escaped(control, value, reserved=""):
    escaper = ControlEscaper(control, reserved, parse=False)
    return (None, escaper.marks) if escaper.is_clean(value) else escaper.escaped(value)


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


@given(st.lists(st.text("ab<", min_size=2, max_size=4), min_size=1), st.text("ab<", max_size=12))
def test_no_control_string_is_left_in_escaped_text_and_nothing_is_lost(strings, text):
    escaper = ControlEscaper(strings, "", parse=False)
    found, marks = escaper.escaped(text)
    assert not re.search(control_pattern(strings), found)
    assert found.replace(marks[2], "") == text
    assert escaper.is_clean(text) == (found == text)
