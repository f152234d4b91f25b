from __future__ import annotations

import json

import pytest
from tokenizers import Tokenizer as Library

from tokmill.tokenizer.equivalent_json import equivalent_text
from tokmill.tokenizer.hostile_texts import hostile_texts

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
    "sequences flattened": sequence(sequence(SPLITTING)),
    "digits and ByteLevel as one split": sequence(
        {"type": "Digits", "individual_digits": True}, SPLITTING
    ),
    "Punctuation as a split": sequence({"type": "Punctuation", "behavior": "Contiguous"}, BYTES),
}


@pytest.fixture
def content(tokenizer):
    return json.loads(tokenizer.json)


def rewritten_of(content):
    text, names = equivalent_text(json.dumps(content))
    return json.loads(text), names


def ids(content):
    library = Library.from_str(json.dumps(content))
    library.encode_special_tokens = True
    texts = [*hostile_texts(["<eos>"]), *MORE_TEXTS]
    return [e.ids for e in library.encode_batch(texts, add_special_tokens=False)]


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_a_rewritten_pre_tokenizer_gives_the_same_ids(content, name):
    content["pre_tokenizer"] = PRE_TOKENIZERS[name]
    rewritten, words = rewritten_of(content)
    assert name in words
    assert rewritten != content
    assert ids(rewritten) == ids(content)


def test_runs_of_digits_stay_together_unless_digits_splits_them(content):
    content["pre_tokenizer"] = sequence({"type": "Digits", "individual_digits": False}, SPLITTING)
    rewritten, _ = rewritten_of(content)
    assert ids(rewritten) == ids(content)


@pytest.mark.parametrize(
    "pre_tokenizer",
    [
        SPLITTING,
        sequence(SPLIT, BYTES),
        sequence({"type": "Digits", "individual_digits": True}, BYTES),
        sequence({"type": "Split", "pattern": {"String": " "}, "behavior": "Isolated"}, BYTES),
    ],
)
def test_a_json_without_an_equivalent_is_not_changed(content, pre_tokenizer):
    content["pre_tokenizer"] = pre_tokenizer
    assert rewritten_of(content) == (content, ())


def test_a_fast_engine_loads_the_rewritten_json(content):
    load_hf_json = pytest.importorskip("gigatoken.gigatoken_rs").load_hf_json
    content["pre_tokenizer"] = sequence(SPLITTING)
    rewritten, _ = rewritten_of(content)
    assert load_hf_json(json.dumps(rewritten)).encode("it's 12").tolist() == (
        Library.from_str(json.dumps(content)).encode("it's 12", add_special_tokens=False).ids
    )
