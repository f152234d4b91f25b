from __future__ import annotations

import pytest

from tokmill.chat.pairs import pair_in
from tokmill.settings.schema import SftSettings

SETTINGS = SftSettings()
USER, REPLY = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}


@pytest.mark.parametrize(
    "item",
    [
        {"human": "q", "assistant": "a"},
        {"assistant": "a", "Human": "q"},
        {"input": "q", "output": "a"},
        {"question": "q", "answer": "a"},
        {"system": "", "user": "q", "gpt": "a"},
        {"system": None, "user": "q", "gpt": "a"},
    ],
)
def test_a_pair_is_a_question_and_its_answer(item):
    assert pair_in(item, SETTINGS) == [USER, REPLY]


def test_a_system_text_stands_before_its_pair():
    found = pair_in({"output": "a", "input": "q", "system": "be"}, SETTINGS)
    assert found == [{"role": "system", "content": "be"}, USER, REPLY]


@pytest.mark.parametrize(
    "item",
    [{"human": "q"}, {"human": "q", "assistant": 3}, {"human": "q", "assistant": "a", "id": 7},
     {"human": "q", "user": "r", "gpt": "a"}, {"role": "user", "content": "q"}, [], "q"],
)  # fmt: skip
def test_anything_else_is_none(item):
    assert pair_in(item, SETTINGS) == []


def test_names_of_roles_that_are_given_count():
    item = {"kunde": "q", "berater": "a"}
    settings = SftSettings(role_names=("berater=assistant", "kunde=user"))
    assert pair_in(item, SETTINGS) == []
    assert pair_in(item, settings) == [USER, REPLY]
