from __future__ import annotations

import json

import pytest

from tokmill.engines.trial.contexts import Context, Group, derive_groups
from tokmill.tokenizer.control_tokens import with_control_tokens


def groups_by(groups: list[Group], character: str) -> Group:
    (found,) = (group for group in groups if character in group.characters)
    return found


def test_a_text_contains_every_character_in_its_context():
    assert Context("a", "'s").text("é中") == "\naé's\na中's\n"


def test_all_characters_are_in_a_context_and_large_classes_in_few(tokenizer):
    groups = derive_groups(tokenizer)
    assert sum(len(group.characters) for group in groups) == 1_112_064
    assert all(group.contexts for group in groups)
    assert len(groups_by(groups, "\U00050000").contexts) <= 3
    assert len(groups_by(groups, "ſ").contexts) > 50
    assert groups_by(groups, "a").characters.isascii()


@pytest.mark.parametrize(
    ("normalizer", "expected"),
    [(None, set()), ({"type": "NFC"}, {"\u0334", "q\u0345"}), ({"type": "Lowercase"}, set())],
)
def test_contexts_have_marks_if_a_normalizer_sorts_them(
    make_tokenizer, bytes_model, normalizer, expected
):
    split = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    tokenizer = make_tokenizer(bytes_model(), normalizer=normalizer, pre_tokenizer=split)
    groups = derive_groups(tokenizer)
    sides = {side for c in groups_by(groups, "a").contexts for side in (c.left, c.right)}
    assert sides & {"\u0334", "q\u0345"} == expected


def test_contexts_have_digits_and_quotes_if_the_pattern_names_them(make_tokenizer, bytes_model):
    def sides_of(regex: str) -> set[str]:
        pattern = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated"}
        last = {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": False,
        }
        parts = {"type": "Sequence", "pretokenizers": [{**pattern, "invert": False}, last]}
        tokenizer = make_tokenizer(bytes_model(), pre_tokenizer=parts)
        contexts = groups_by(derive_groups(tokenizer), "a").contexts
        return {side for context in contexts for side in (context.left, context.right)}

    assert not {"'s", "1234567", "★"} & sides_of(r"\s+|\S+")
    assert sides_of(r"'s|\p{N}{1,3}|★|\S+") >= {"'s", "1234567", "★"}


def test_if_no_class_is_distinguished_characters_stand_between_letters(make_tokenizer, marks_model):
    groups = derive_groups(make_tokenizer(marks_model))
    assert groups_by(groups, "\U00050000").contexts == (Context("a", "a"),)


def test_variants_of_a_tokenizer_have_groups_of_their_own(tokenizer):
    marked = with_control_tokens(tokenizer, ["<tool>"])
    assert json.loads(marked.json) != json.loads(tokenizer.json)
    assert len(derive_groups(marked)) == len(derive_groups(tokenizer))
