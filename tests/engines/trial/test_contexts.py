from __future__ import annotations

import json

import pytest
from tokenizers import Tokenizer as Library
from tokenizers import models, pre_tokenizers

from tokmill.engines.characters import COMMON
from tokmill.engines.trial.contexts import SEPARATOR, Context, Group, _signs, derive_groups
from tokmill.tokenizer.control_tokens import with_control_tokens


def groups_by(groups: list[Group], character: str) -> Group:
    (found,) = (group for group in groups if character in group.characters)
    return found


def test_a_text_contains_every_character_in_its_context():
    assert Context("a", "'s").text("é中") == "\naé's\na中's\n"


def test_all_characters_are_in_a_context_and_large_classes_in_few(tokenizer):
    groups = derive_groups(tokenizer.library())
    assert sum(len(group.characters) for group in groups) == 1_112_064
    assert all(group.contexts for group in groups)
    assert len(groups_by(groups, "\U00050000").contexts) <= 3
    assert len(groups_by(groups, "ſ").contexts) > 50
    assert groups_by(groups, "a").characters.isascii()


def test_the_common_characters_are_compared_in_fewer_contexts(tokenizer):
    groups = derive_groups(tokenizer.library(), all_characters=False)
    assert sorted(ord(c) for group in groups for c in group.characters) == list(COMMON.codes())
    everything = derive_groups(tokenizer.library())
    assert groups_by(groups, "a") == groups_by(everything, "a")
    assert 0 < len(groups_by(groups, "ſ").contexts) < len(groups_by(everything, "ſ").contexts)


@pytest.mark.parametrize(("left", "right"), [("", "'s"), ("1", "1"), (" ", ""), ("é", "  ")])
def test_a_context_distinguishes_classes_as_it_does_in_a_text_of_its_own(
    make_tokenizer, bytes_model, left, right
):
    split = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    merges = [("'", "s"), ("1", "1"), ("Ġ", "Ġ"), ("Ċ", "Ċ"), ("Ġ", "a")]
    library = make_tokenizer(bytes_model(*merges), pre_tokenizer=split).library()
    context, characters = Context(left, right), "aé1²!€ \t\u3000\u0301中"

    def around(text: str) -> list[object]:
        """Return the tokens of a text without its character, and the extent of those with it."""
        encoding, place = library.encode(text), len(SEPARATOR + left)
        own = {bounds for bounds in encoding.offsets if bounds[0] <= place < bounds[1]}
        tokens = zip(encoding.ids, encoding.offsets, strict=True)
        return [
            *sorted(own),
            *((id_, start) for id_, (start, stop) in tokens if (start, stop) not in own),
        ]

    alone = [around(context.text(one)) for one in characters]
    (signs,) = _signs(library, list(characters), [context])[:, :, 0]
    same = [[one == other for other in alone] for one in alone]
    assert (signs[:, None] == signs).tolist() == same


@pytest.mark.parametrize(
    ("normalizer", "expected"),
    [(None, set()), ({"type": "NFC"}, {"\u0334", "q\u0345"}), ({"type": "Lowercase"}, set())],
)
def test_contexts_have_marks_if_a_normalizer_sorts_them(
    make_tokenizer, bytes_model, normalizer, expected
):
    split = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    tokenizer = make_tokenizer(bytes_model(), normalizer=normalizer, pre_tokenizer=split)
    groups = derive_groups(tokenizer.library())
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
        contexts = groups_by(derive_groups(tokenizer.library()), "a").contexts
        return {side for context in contexts for side in (context.left, context.right)}

    assert not {"'s", "1234567", "★"} & sides_of(r"\s+|\S+")
    assert sides_of(r"'s|\p{N}{1,3}|★|\S+") >= {"'s", "1234567", "★"}


def test_if_no_class_is_distinguished_characters_stand_between_letters(make_tokenizer, marks_model):
    groups = derive_groups(make_tokenizer(marks_model).library())
    assert groups_by(groups, "\U00050000").contexts == (Context("a", "a"),)


def test_variants_of_a_tokenizer_have_groups_of_their_own(tokenizer):
    marked = with_control_tokens(tokenizer, ["<tool>"])
    assert json.loads(marked.json) != json.loads(tokenizer.json)
    assert len(derive_groups(marked.library())) == len(derive_groups(tokenizer.library()))


def test_a_character_that_gives_no_token_has_contexts_too():
    without_unknown = Library(models.BPE({"中": 0, "b": 1}, []))
    without_unknown.pre_tokenizer = pre_tokenizers.Whitespace()
    joined = Library(models.BPE({"<unk>": 0, "中": 1}, [], unk_token="<unk>", fuse_unk=True))
    for library in (without_unknown, joined):
        groups = derive_groups(library, all_characters=False)
        assert sorted(ord(c) for group in groups for c in group.characters) == list(COMMON.codes())
        assert all(group.contexts for group in groups)
