from __future__ import annotations

import sys
import unicodedata

import pytest

from tokmill.engines.pretokens.split_rule import SPACE_MARK, WHITE_SPACE, is_plain, split_rule
from tokmill.errors import TokenizerError

WORDS = {"type": "WordLevel", "vocab": {"<unk>": 0}, "unk_token": "<unk>"}
UNIGRAM = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["abc", -1.0], ["ad", -2.0]]}
SPLIT = {"type": "WhitespaceSplit"}
BERT = {"type": "BertPreTokenizer"}
MARKS = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
PRECOMPILED = {"type": "Precompiled", "precompiled_charsmap": ""}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def normalizers(*steps):
    return {"type": "Sequence", "normalizers": list(steps)}


def replace(pattern, content, kind="String"):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def strip(*, left):
    return {"type": "Strip", "strip_left": left, "strip_right": True}


def rule(pre_tokenizer, normalizer=None, model=WORDS, added=(), parse=False):
    content = {
        "added_tokens": list(added),
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "model": model,
    }
    return split_rule(content, parse=parse)


@pytest.mark.parametrize(
    "pre_tokenizer",
    [
        SPLIT,
        BERT,
        {"type": "Whitespace"},
        sequence(SPLIT, MARKS),
        sequence({"type": "Whitespace"}, {"type": "Digits", "individual_digits": True}),
        sequence(sequence(SPLIT), sequence(BYTES | {"add_prefix_space": True})),
        sequence(SPLIT, MARKS | {"prepend_scheme": "never", "split": False}),
    ],
)
def test_a_pretoken_ends_after_white_space_that_is_dropped(pre_tokenizer):
    assert rule(pre_tokenizer).drops_space


@pytest.mark.parametrize("scheme", ["always", "first", "never"])
def test_a_pretoken_begins_with_the_space_that_becomes_a_mark(scheme):
    assert not rule(MARKS | {"prepend_scheme": scheme}).drops_space


def test_a_pretoken_begins_with_the_space_of_a_byte_level_word():
    assert not rule(BYTES).drops_space


@pytest.mark.parametrize(
    ("pre_tokenizer", "cause"),
    [
        (None, "not known to split at spaces: none"),
        ({"type": "CharDelimiterSplit", "delimiter": " "}, "at spaces: CharDelimiterSplit"),
        (sequence({"type": "Punctuation", "behavior": "Isolated"}, SPLIT), "Punctuation, Whites"),
        (sequence(SPLIT, {"type": "FixedLength", "length": 5}), "WhitespaceSplit, FixedLength"),
        (sequence(MARKS, {"type": "Digits", "individual_digits": True}), "Metaspace, Digits"),
        (MARKS | {"split": False}, "not known to split at spaces: Metaspace"),
        (BYTES | {"use_regex": False}, "not known to split at spaces: ByteLevel"),
        (BYTES | {"add_prefix_space": True}, "puts a space before the first word"),
        (MARKS | {"replacement": "_"}, "replaces a space by '_'"),
        (sequence(SPLIT, MARKS | {"prepend_scheme": "first"}), "treats the first word"),
    ],
)
def test_a_pre_tokenizer_without_provable_split_points_is_refused(pre_tokenizer, cause):
    with pytest.raises(TokenizerError, match=cause):
        rule(pre_tokenizer)


@pytest.mark.parametrize(
    ("pre_tokenizer", "normalizer", "cause"),
    [
        (SPLIT, {"type": "Prepend", "prepend": "▁"}, "Prepend may look beyond a word"),
        (SPLIT, normalizers({"type": "NFC"}, {"type": "ByteLevel"}), "ByteLevel may look beyond"),
        (MARKS, strip(left=True), "strips the space at the start of a word"),
        (SPLIT, replace(r"a+", "a", "Regex"), "which a split point may divide"),
        (SPLIT, replace("a b", "c"), "which a split point may divide"),
        (SPLIT, replace("", "c"), "which a split point may divide"),
        (SPLIT, replace(" {2,}", "▁", "Regex"), "replaces spaces by '▁'"),
        (sequence(SPLIT, MARKS), replace(" {2,}", "▁", "Regex"), "replaces spaces by '▁'"),
        (BYTES, replace(" {2,}", "▁", "Regex"), "replaces spaces by '▁'"),
        (MARKS, replace(" {2,}", "x", "Regex"), "replaces spaces by 'x'"),
        (SPLIT, normalizers(PRECOMPILED, PRECOMPILED), "may join characters of an earlier"),
        (
            SPLIT,
            normalizers(replace("x", "\u0600"), PRECOMPILED),
            "may join characters of an earlier",
        ),
    ],
)
def test_a_normalizer_that_may_cross_a_split_point_is_refused(pre_tokenizer, normalizer, cause):
    with pytest.raises(TokenizerError, match=cause):
        rule(pre_tokenizer, normalizer)


@pytest.mark.parametrize(
    ("pre_tokenizer", "normalizer"),
    [
        (SPLIT, strip(left=True)),
        (MARKS, strip(left=False)),
        (SPLIT, replace(" {2,}", " ", "Regex")),
        (MARKS, replace(" {2,}", "▁", "Regex")),
        (SPLIT, normalizers(replace("``", '"'), {"type": "NFKD"}, PRECOMPILED)),
    ],
)
def test_a_normalizer_that_never_crosses_a_split_point_is_allowed(pre_tokenizer, normalizer):
    rule(pre_tokenizer, normalizer)


def test_an_added_token_that_a_text_can_contain_is_refused():
    plain, special = {"content": "<t>", "special": False}, {"content": "<s>", "special": True}
    rule(SPLIT, added=[special])
    with pytest.raises(TokenizerError, match="added token '<t>' may cross a split point"):
        rule(SPLIT, added=[special, plain])
    with pytest.raises(TokenizerError, match="added token '<s>' may cross a split point"):
        rule(SPLIT, added=[special], parse=True)


def test_only_bert_has_lone_characters():
    assert rule(BERT).lone_characters
    assert not rule(
        sequence(BERT, {"type": "Punctuation", "behavior": "Contiguous"})
    ).lone_characters


def test_the_characters_of_a_pattern_are_glued():
    assert rule(SPLIT, normalizers(replace("``", '"'), replace("ab", ""))).glued == set("`ab")


@pytest.mark.parametrize(
    ("normalizer", "composes"),
    [(None, False), ({"type": "NFKC"}, True), ({"type": "NFC"}, True), ({"type": "NFD"}, False)],
)
def test_a_last_step_that_composes_is_recognized(normalizer, composes):
    assert rule(SPLIT, normalizer).composes is composes


def test_the_steps_of_nested_sequences_come_in_order():
    nested = normalizers({"type": "NFC"}, normalizers({"type": "Lowercase"}))
    assert rule(SPLIT, nested).normalizers == ({"type": "NFC"}, {"type": "Lowercase"})


@pytest.mark.parametrize(
    ("pre_tokenizer", "ends"),
    [
        (SPLIT, WHITE_SPACE),
        (MARKS, " " + SPACE_MARK),
        (sequence(SPLIT, MARKS), WHITE_SPACE + " " + SPACE_MARK),
        (sequence(SPLIT, MARKS | {"split": False}), WHITE_SPACE),
    ],
)
def test_a_unigram_has_followers_and_ends_of_words(pre_tokenizer, ends):
    found = rule(pre_tokenizer, model=UNIGRAM)
    assert found.word_ends == ends
    assert {first: "".join(sorted(rest)) for first, rest in (found.followers or {}).items()} == {
        **{"<": "u", "u": "n", "n": "k", "k": ">"},
        **{"a": "bd", "b": "c"},
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"unk_id": None},
        {"byte_fallback": True},
        {"vocab": [["<unk>", 0.0], ["a", 0.5]]},
        {"vocab": [["<unk>", 0.0], ["a", -101.0]]},
        {"vocab": [["<unk>", 0.0], ["", -1.0]]},
        {"vocab": [["<unk>", 0.0], ["<unk><unk>", -1.0]]},
    ],
)
def test_the_words_of_other_unigrams_are_not_split(changes):
    assert rule(SPLIT, model=UNIGRAM | changes).followers is None


@pytest.mark.parametrize("pre_tokenizer", [BERT, sequence(SPLIT, BYTES), BYTES])
def test_words_are_not_split_if_a_step_splits_them_elsewhere(pre_tokenizer):
    assert rule(pre_tokenizer, model=UNIGRAM).followers is None


def test_the_words_of_other_models_are_not_split():
    assert rule(SPLIT).followers is None


@pytest.mark.parametrize("character", "a ~\n\té中한。\xa0\u3000ก١👍")
def test_a_letter_or_a_space_is_a_grapheme_of_its_own(character):
    assert is_plain(character)


@pytest.mark.parametrize(
    "character", "\r\x00\x7f\x85\u0301\u0600\u200d\u0e33\u0d4e\u1100\u1161\uff9e🇨🏽\ue000\U0001193f"
)
def test_a_character_that_may_join_a_neighbour_is_not_plain(character):
    assert not is_plain(character)


def test_no_plain_character_composes_with_or_moves_before_its_predecessor():
    for character in filter(is_plain, map(chr, range(sys.maxunicode + 1))):
        for form in ("NFD", "NFKD"):
            first = unicodedata.normalize(form, character)[0]
            assert not unicodedata.combining(first), ascii(character)
    seconds = {
        chr(int(parts[1], 16))
        for parts in (unicodedata.decomposition(chr(code)).split() for code in range(0x110000))
        if len(parts) == 2 and not parts[0].startswith("<")
    }
    assert seconds
    assert not any(map(is_plain, seconds))
