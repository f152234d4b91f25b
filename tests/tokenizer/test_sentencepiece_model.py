from __future__ import annotations

import itertools
import struct

import pytest
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from tokenizers import Tokenizer as Library

from tokmill.errors import TokenizerError
from tokmill.tokenizer.sentencepiece_model import (
    Piece,
    PieceType,
    SentencePieceModel,
    read_model,
    sentencepiece_to_json,
)

CORPUS = [
    "the cat sat on the mat and the dog sat on the log",
    "a tokenizer reads text and gives ids, the same ids each time",
    "百科全书是人类知识的总汇。北京是中华人民共和国的首都。",
    "spaces   in    runs, numbers 0123456789, <tags> and </tags>",
]
TEXTS = [
    "",
    " ",
    "     ",
    "\n",
    "the cat",
    "  the  cat  ",
    "the\u3000cat\t\n ",
    "▁",
    "▁the ▁",
    "<s>the</s><unk><pad>",
    "<0x41> <0x0A>",
    "北京的猫 😀\x00é",
    "a\u0300\u0301 e\u0301",
    *(" " * n + "the" + " " * n + "of" for n in range(40)),
]


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    folder, number = tmp_path_factory.mktemp("models"), itertools.count()

    def train_one(**options):
        prefix = folder / str(next(number))
        SentencePieceTrainer.train(
            sentence_iterator=iter(CORPUS),
            model_prefix=str(prefix),
            minloglevel=2,
            hard_vocab_limit=False,
            **{"model_type": "bpe", "vocab_size": 380, "normalization_rule_name": "identity"}
            | options,
        )
        return prefix.with_suffix(".model").read_bytes()

    return train_one


def as_library(data):
    loaded = Library.from_str(sentencepiece_to_json(read_model(data, where="x")))
    loaded.encode_special_tokens = True
    return loaded


@pytest.mark.parametrize(
    "options",
    [
        {"byte_fallback": True},
        {"byte_fallback": True, "remove_extra_whitespaces": False},
        {"byte_fallback": True, "add_dummy_prefix": False, "allow_whitespace_only_pieces": True},
        {"vocab_size": 150},
        {"vocab_size": 150, "remove_extra_whitespaces": False, "pad_id": 3},
        {"byte_fallback": True, "user_defined_symbols": ["the", "<tags>", "\n", "at on"]},
    ],
    ids=str,
)
def test_a_converted_model_has_the_ids_of_sentencepiece(train, options):
    data = train(**options)
    theirs, ours = SentencePieceProcessor(model_proto=data), as_library(data)
    for text in TEXTS + CORPUS:
        assert ours.encode(text).ids == theirs.encode(text), text


def build(pieces, **changes):
    reserved = [Piece("<unk>", 0.0, PieceType.UNKNOWN), Piece("<s>", 0.0, PieceType.CONTROL)]
    values = {
        "pieces": (*reserved, *pieces),
        "model_type": 2,
        "byte_fallback": False,
        "whitespace_as_suffix": False,
        "charsmap": b"",
        "dummy_prefix": True,
        "remove_extra_whitespaces": False,
        "escape_whitespaces": True,
    }
    return SentencePieceModel(**values | changes)


def normal(*contents_and_scores):
    return [Piece(content, score, PieceType.NORMAL) for content, score in contents_and_scores]


def proto(model):
    """Write a model as SentencePiece's own library reads it."""

    def field(number, data):
        assert len(data) < 128
        return bytes([number << 3 | 2, len(data)]) + data

    pieces = (
        field(1, p.content.encode()) + b"\x15" + struct.pack("<f", p.score) + bytes([0x18, p.type])
        for p in model.pieces
    )
    trainer = b"\x18\x02\x98\x02" + bytes([model.byte_fallback])
    normalizer = b"\x18\x01\x20\x00"
    return b"".join(field(1, p) for p in pieces) + field(2, trainer) + field(3, normalizer)


def test_runs_of_spaces_with_equal_scores_grow_from_the_left():
    runs = [("▁" * n, -1e9) for n in (1, 2, 3, 4, 5, 8)]
    model = build(normal(("a", -1.0), ("▁a", -0.5), *runs))
    data = proto(model)
    assert read_model(data, where="x") == model
    theirs, ours = SentencePieceProcessor(model_proto=data), as_library(data)
    for n in range(30):
        text = " " * n + "a"
        assert ours.encode(text).ids == theirs.encode(text)
        assert ours.encode(" " * n).ids == theirs.encode(" " * n)


@pytest.mark.parametrize(
    ("pieces", "changes"),
    [
        ([], {"model_type": 1}),
        ([], {"charsmap": b"\x01"}),
        ([], {"whitespace_as_suffix": True}),
        ([], {"escape_whitespaces": False}),
        ([Piece("a", 0.0, PieceType.UNUSED)], {}),
        (normal(("a", -3), ("b", -4), ("ab", -1), ("ba", -1)), {}),
        (normal(("a", -3), ("ab", -1)), {}),
    ],
    ids=["unigram", "charsmap", "suffix", "unescaped", "unused piece", "tie", "missing character"],
)
def test_a_model_without_equivalent_merges_has_no_json(pieces, changes):
    assert sentencepiece_to_json(build(pieces, **changes)) == ""


def test_trained_models_with_a_normalization_table_or_unigrams_have_no_json(train):
    for options in ({"normalization_rule_name": "nmt_nfkc"}, {"model_type": "unigram"}):
        data = train(vocab_size=150, **options)
        assert sentencepiece_to_json(read_model(data, where="x")) == ""


@pytest.mark.parametrize(
    "data",
    [
        b"", b"hello", b"\x0a", b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x02\x0a\x05", b"\xff" * 40,
        b"\x0a\0\0\xe1t",  # a piece without content
        b"\x0a\x02\x08\x01",  # a piece whose content is a number
    ],
)  # fmt: skip
def test_other_bytes_are_refused(data):
    with pytest.raises(TokenizerError, match=r"^x: not a SentencePiece model$"):
        read_model(data, where="x")
