from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer as Library

from tests.fixtures.tokenizers import MARKS, META
from tokmill.tokenizer.byte_lengths import byte_lengths, composed
from tokmill.tokenizer.hostile_texts import hostile_texts

BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
PLAIN = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)


def column(texts):
    return pa.array(texts, pa.large_string())


def sums(tokenizer, texts):
    found = byte_lengths(tokenizer)
    library = Library.from_str(tokenizer.json)
    library.encode_special_tokens = True
    encodings = library.encode_batch(texts, add_special_tokens=False)
    return [int(found.lengths[encoding.ids].sum()) for encoding in encodings]


def test_lengths_of_a_byte_level_tokenizer_sum_to_the_length_of_the_text(tokenizer):
    texts = [*hostile_texts(["<eos>"]), "a<tool>b", "e\u0301"]
    found = byte_lengths(tokenizer)
    assert (found.prefix, found.composes, found.lengths.dtype) == ("never", False, np.int32)
    assert found.lengths.shape == (tokenizer.vocab_size,)
    assert sums(tokenizer, texts) == [len(text.encode()) for text in texts]


def test_an_added_token_stands_for_its_own_bytes(make_tokenizer, bytes_model):
    added = [{"id": 256, "content": "<猫>"} | PLAIN]
    tokenizer = make_tokenizer(bytes_model(), pre_tokenizer=BYTES, added_tokens=added)
    assert byte_lengths(tokenizer).lengths[256] == 5


@pytest.mark.parametrize(
    ("parts", "prefix"),
    [({"normalizer": MARKS}, "always"), ({"pre_tokenizer": META}, "unless_space")],
)
def test_marks_count_as_spaces_and_byte_tokens_as_one_byte(
    make_tokenizer, marks_model, parts, prefix
):
    tokenizer = make_tokenizer(marks_model, **parts)
    found = byte_lengths(tokenizer)
    texts = ["ab", "a b", "  a  ", "猫 e", " ", "\n"]
    n_prefix = found.n_prefix_bytes(column(texts)).tolist()
    assert found.prefix == prefix
    assert n_prefix == [1, 1, int(prefix == "always"), 1, int(prefix == "always"), 1]
    expected = [len(text.encode()) + n for text, n in zip(texts, n_prefix, strict=True)]
    assert sums(tokenizer, texts) == expected
    assert sums(tokenizer, ["▁a"]) != [4 + found.n_prefix_bytes(column(["▁a"]))[0]]


def test_an_added_token_has_no_known_length_if_texts_get_a_prefix(make_tokenizer, marks_model):
    added = [{"id": 267, "content": "<x>"} | PLAIN]
    tokenizer = make_tokenizer(marks_model, normalizer=MARKS, added_tokens=added)
    assert sums(tokenizer, ["a<x>a"])[0] > 1000


def test_an_unknown_token_has_length_zero(make_tokenizer, marks_model):
    model = marks_model | {"byte_fallback": False}
    tokenizer = make_tokenizer(model, normalizer=MARKS)
    assert sums(tokenizer, ["a猫"]) == [2]


def test_a_space_that_byte_level_puts_in_front_is_a_prefix(make_tokenizer, bytes_model):
    adding = BYTES | {"add_prefix_space": True}
    tokenizer = make_tokenizer(bytes_model(), pre_tokenizer=adding)
    assert byte_lengths(tokenizer).prefix == "unless_space"
    assert sums(tokenizer, ["ab", " ab"]) == [3, 3]


def test_tokens_of_a_unigram_have_lengths(make_tokenizer):
    vocab = [["<unk>", 0.0], ["▁", -1.0], ["a", -2.0], ["▁a", -1.5], ["猫", -3.0]]
    model = {"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": False}
    tokenizer = make_tokenizer(model, pre_tokenizer=META)
    assert byte_lengths(tokenizer).lengths.tolist() == [0, 1, 1, 2, 3]


NFC = {"type": "NFC"}
SPLIT = {"type": "Split", "pattern": {"Regex": "x"}, "behavior": "Removed", "invert": False}


@pytest.mark.parametrize(
    ("normalizer", "pre_tokenizer", "is_known"),
    [
        (None, BYTES, True),
        (NFC, BYTES, True),
        (None, {"type": "Sequence", "pretokenizers": [SPLIT, BYTES]}, True),
        ({"type": "NFKC"}, BYTES, False),
        ({"type": "Lowercase"}, BYTES, False),
        ({"type": "Sequence", "normalizers": [NFC, {"type": "StripAccents"}]}, BYTES, False),
        ({"type": "Prepend", "prepend": "x"}, BYTES, False),
        (None, {"type": "BertPreTokenizer"}, False),
        (None, META | {"replacement": "_"}, False),
        (None, {"type": "Sequence", "pretokenizers": [META, BYTES]}, False),
        (None, {"type": "Sequence", "pretokenizers": [SPLIT, META]}, False),
        (MARKS, META, False),
    ],
)
def test_only_tokenizers_that_keep_the_text_have_lengths(
    make_tokenizer, bytes_model, normalizer, pre_tokenizer, is_known
):
    given = make_tokenizer(bytes_model(), normalizer=normalizer, pre_tokenizer=pre_tokenizer)
    found = byte_lengths(given)
    assert (found is not None) == is_known
    assert found is None or found.composes == (normalizer == NFC)


def test_a_vocabulary_with_marked_words_has_no_lengths(make_tokenizer, bytes_model):
    model = bytes_model() | {"end_of_word_suffix": "</w>"}
    assert byte_lengths(make_tokenizer(model, pre_tokenizer=BYTES)) is None
    words = {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"}
    assert byte_lengths(make_tokenizer(words, pre_tokenizer=BYTES)) is None


def test_texts_are_composed():
    texts = ["", "abc", "cafe\u0301", "猫👍", "\u212b", "\u1112\u1161\u11ab"]
    expected = ["", "abc", "caf\u00e9", "猫👍", "\u00c5", "한"]
    assert composed(column(texts)).to_pylist() == expected
    already = column(expected)
    assert composed(already) is already
