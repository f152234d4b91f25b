from __future__ import annotations

import pytest

from tokmill.chat.segments import Kind
from tokmill.masks.encoder import JOINT_DIFFERS, STRADDLING_TOKENS
from tokmill.masks.truncation import CUT_SAMPLES
from tokmill.page.mask_words import noticed, trained_parts


def test_every_part_of_a_turn_has_words_without_an_abbreviation():
    for kind in Kind:
        words = trained_parts({"trained": [kind.name.lower()]})
        assert words.startswith("trains ")
        assert "_" not in words
        assert "eot" not in words


def test_parts_are_listed_and_what_a_newer_version_trains_keeps_its_name():
    assert trained_parts({"trained": ["content", "eot", "new"]}) == "trains text, end of turn, new"
    assert trained_parts({}) == trained_parts({"trained": []}) == ""


@pytest.mark.parametrize(
    ("n", "counter", "expected"),
    [
        (
            1,
            JOINT_DIFFERS,
            "1 sample with other tokens at a boundary of the mask than the same text encoded in "
            "one piece",
        ),
        (1234, STRADDLING_TOKENS, "1,234 tokens with trained and untrained bytes"),
        (1, CUT_SAMPLES, "1 sample cut to max_tokens"),
        (2, "windows left out", "2 windows left out"),
    ],
)
def test_what_was_noticed_is_said_in_words(n, counter, expected):
    assert noticed(n, counter) == expected
