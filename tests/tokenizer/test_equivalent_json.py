from __future__ import annotations

import json

import pytest
from tokenizers import Tokenizer as Library

from tokmill.engines.texts import hostile_texts
from tokmill.tokenizer.equivalent_json import to_equivalent

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SPLIT = {"type": "Split", "pattern": {"Regex": GPT2}, "behavior": "Isolated", "invert": False}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
SPLITTING = BYTES | {"use_regex": True}
MORE_TEXTS = [
    "a 12 345b",
    "7  8\n 9",
    "it's 3's",
    "«x» — ‘y’!",
    "  12",
    "x 　\t 4",
    "１２ ３",
    "½ ²",
]


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


PRE_TOKENIZERS = {
    "GPT-2's pattern as ByteLevel": sequence(SPLIT, BYTES),
    "sequences flattened": sequence(sequence(SPLITTING)),
    "digits and ByteLevel as one split": sequence(
        {"type": "Digits", "individual_digits": True}, SPLITTING
    ),
    "Punctuation as a split": sequence({"type": "Punctuation", "behavior": "Contiguous"}, BYTES),
}


@pytest.fixture
def content(tokenizer):
    return json.loads(tokenizer.json)


def ids(content):
    library = Library.from_str(json.dumps(content))
    library.encode_special_tokens = True
    texts = [*hostile_texts(["<eos>"]), *MORE_TEXTS]
    return [e.ids for e in library.encode_batch(texts, add_special_tokens=False)]


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_a_rewritten_pre_tokenizer_gives_the_same_ids(content, name):
    content["pre_tokenizer"] = PRE_TOKENIZERS[name]
    rewritten, words = to_equivalent(content)
    assert name in words
    assert rewritten != content
    assert ids(rewritten) == ids(content)


def test_runs_of_digits_stay_together_unless_digits_splits_them(content):
    content["pre_tokenizer"] = sequence({"type": "Digits", "individual_digits": False}, SPLITTING)
    rewritten, _ = to_equivalent(content)
    assert ids(rewritten) == ids(content)


@pytest.mark.parametrize(
    "pre_tokenizer",
    [
        SPLITTING,
        sequence(SPLIT | {"behavior": "MergedWithNext"}, BYTES),
        sequence(SPLIT | {"pattern": {"Regex": r"\s+"}}, BYTES),
        sequence(SPLIT, BYTES | {"add_prefix_space": True}),
    ],
)
def test_a_json_without_an_equivalent_is_not_changed(content, pre_tokenizer):
    content["pre_tokenizer"] = pre_tokenizer
    assert to_equivalent(content) == (content, ())


def test_bytes_that_no_text_contains_are_added_and_no_id_changes(content):
    before = dict(content["model"]["vocab"])
    byte = "Á"  # the character of byte 0xC1, which stands in no UTF-8
    gone = before.pop(byte)
    content["model"]["vocab"] = before
    rewritten, words = to_equivalent(content)
    vocab = rewritten["model"]["vocab"]
    assert words == ("a vocabulary without holes",)
    assert vocab[byte] == gone
    assert {token: vocab[token] for token in before} == before
    assert ids(rewritten) == ids(content)


def test_a_byte_that_a_text_can_contain_is_not_added(content):
    del content["model"]["vocab"]["Ċ"]  # the newline
    content["model"]["merges"] = []
    assert to_equivalent(content)[1] == ()


def test_a_fast_engine_loads_the_rewritten_json(content):
    load_hf_json = pytest.importorskip("gigatoken.gigatoken_rs").load_hf_json
    content["pre_tokenizer"] = sequence(SPLIT, BYTES)
    rewritten, _ = to_equivalent(content)
    assert load_hf_json(json.dumps(rewritten)).encode("it's 12").tolist() == (
        Library.from_str(json.dumps(content)).encode("it's 12", add_special_tokens=False).ids
    )
