from __future__ import annotations

import pytest

from tokmill.engines.pretokens.encoder import INSIDE, PretokenEncoder
from tokmill.engines.pretokens.split_rule import split_rule
from tokmill.engines.pretokens.table import PretokenIds
from tokmill.engines.pretokens.unigram import LONGEST_PART

MARKS = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
SPLIT_MARKS = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, MARKS]}
TOKENS = ["<unk>", "▁", "▁a", "a", "b", "-", "---", "<eos>"]
UNIGRAM = {"type": "Unigram", "unk_id": 0, "vocab": [[token, -1.0] for token in TOKENS]}
EOS = {
    **{"id": 7, "content": "<eos>", "special": True, "single_word": False},
    **{"lstrip": False, "rstrip": False, "normalized": False},
}


def encoder(pre_tokenizer=SPLIT_MARKS, normalizer=None, model=UNIGRAM, added=()):
    content = {
        "added_tokens": list(added),
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "model": model,
    }
    return PretokenEncoder(content, split_rule(content, parse=False))


def inside(encoder, *texts):
    return encoder.encode([INSIDE + text.encode() for text in texts])


def test_a_pretoken_that_begins_a_word_has_the_ids_of_the_library():
    assert encoder().encode([b"ab ", b"x", b""]) == [
        PretokenIds([2, 4]),
        PretokenIds([1, 0], ends_unknown=True),
        PretokenIds([]),
    ]


def test_a_pretoken_inside_a_word_gets_no_mark():
    assert inside(encoder(), "a", "ba", "x") == [
        PretokenIds([3]),
        PretokenIds([4, 3]),
        PretokenIds([0], continues_unknown=True, ends_unknown=True),
    ]


@pytest.mark.parametrize(
    ("text", "ids"),
    [("a ", [3]), ("a  \u3000", [3]), ("a b", [3, 1, 4]), ("a▁a", [3, 2]), ("a▁", [3, 1])],
)
def test_text_after_the_end_of_the_word_is_encoded_as_words(text, ids):
    assert inside(encoder(), text) == [PretokenIds(ids)]


def test_a_mark_that_splits_no_word_belongs_to_it():
    steps = [{"type": "WhitespaceSplit"}, MARKS | {"split": False}]
    whole = {"type": "Sequence", "pretokenizers": steps}
    assert inside(encoder(whole), "b▁b ▁b") == [PretokenIds([4, 1, 4, 1, 4])]


def test_spaces_that_are_not_dropped_are_words():
    assert inside(encoder(MARKS), "a  b") == [PretokenIds([3, 1, 1, 4])]


def test_an_unknown_token_after_the_word_does_not_merge_with_one_inside():
    assert inside(encoder(), "x y") == [
        PretokenIds([0, 1, 0], continues_unknown=True, ends_unknown=True)
    ]


def test_a_pretoken_whose_ids_depend_on_its_word_cannot_be_encoded_alone():
    assert inside(encoder(), "----", "a") == [PretokenIds([], alone=True), PretokenIds([3])]


def test_ids_after_a_pretoken_without_ids_do_not_go_to_the_next():
    assert inside(encoder(), "---- a", "b ab") == [
        PretokenIds([], alone=True),
        PretokenIds([4, 2, 4]),
    ]


def test_a_pretoken_that_becomes_too_long_cannot_be_encoded_alone():
    double = {"type": "Replace", "pattern": {"String": "b"}, "content": "aa"}
    half = "b" * (LONGEST_PART // 2)
    begins = encoder(normalizer=double)
    (short,) = begins.encode([half.encode()])
    (long,) = begins.encode([half.encode() + b"a"])
    assert not short.alone
    assert long.alone
    assert len(long.ids) == LONGEST_PART + 1
    assert not inside(begins, half)[0].alone
    assert inside(begins, half + "a") == [PretokenIds([], alone=True)]


def test_pretokens_are_normalized():
    lower = encoder(normalizer={"type": "Sequence", "normalizers": [{"type": "Lowercase"}]})
    assert lower.encode([b"A"]) == [PretokenIds([2])]
    assert inside(lower, "A") == [PretokenIds([3])]
    assert [step("A") for step in lower.normalizers] == ["a"]


def test_the_strings_of_special_tokens_are_text():
    model = {"type": "WordLevel", "vocab": {"<unk>": 0, "a": 1, "<eos>": 7}, "unk_token": "<unk>"}
    bert = encoder({"type": "BertPreTokenizer"}, model=model, added=[EOS])
    assert bert.encode([b"a<eos>"]) == [PretokenIds([1, 0, 0, 0])]


def test_the_pre_tokenizer_returns_words():
    assert encoder().words("a b▁c") == ["▁a", "▁b", "▁c"]
