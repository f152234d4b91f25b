from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.chat.control_strings import control_pattern
from tokmill.chat.conversation import ChatError
from tokmill.chat.escaping import ControlEscaper


def test_a_text_with_a_character_of_ours_is_refused():
    escaper = ControlEscaper(["<e>"], parse=False)
    assert not escaper.is_clean(["a\ufdd0"])
    with pytest.raises(ChatError) as error:
        escaper.escaped(["a\ufdd0"])
    assert error.value.reason == "noncharacters"


@given(st.lists(st.text("ab<", min_size=2, max_size=4), min_size=1), st.text("ab<", max_size=12))
def test_no_control_string_is_left_in_escaped_text_and_nothing_is_lost(strings, text):
    escaper = ControlEscaper(strings, parse=False)
    found = escaper.escaped(text)
    assert not re.search(control_pattern(strings), found)
    assert found.replace(escaper.marks[2], "") == text
    assert escaper.is_clean(text) == (found == text)
