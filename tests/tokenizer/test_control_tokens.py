from __future__ import annotations

import dataclasses
import json

import numpy as np
import pyarrow as pa
import pytest

from tests.fixtures.tokenizers import train_sentencepiece
from tokmill.engines.engine import load_engine
from tokmill.errors import TokenizerError
from tokmill.settings.schema import TokenizerSettings
from tokmill.tokenizer.control_tokens import (
    added_tokens,
    contains_any,
    with_control_tokens,
)
from tokmill.tokenizer.tokenizer import AddedToken, load_tokenizer

FLAGS = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)


def encoded(tokenizer, text, engine="reference"):
    found = load_engine(engine, tokenizer, control_in_text="text", n_threads=1)
    return found.encode(pa.array([text], pa.large_string())).ids.tolist()


def test_added_tokens_come_by_string_in_the_order_of_ids(make_tokenizer, bytes_model):
    flags = {"single_word": False, "lstrip": True, "rstrip": True, "normalized": True}
    added = [
        {"id": 256, "content": "<a>", "special": False} | flags,
        {"id": 257, "content": "<b>", "special": True} | FLAGS,
        {"id": 64, "content": "a", "special": False} | FLAGS,
    ]
    tokenizer = make_tokenizer(bytes_model(), added_tokens=added)
    assert list(added_tokens(tokenizer).items()) == [
        ("a", AddedToken(64, "a", False)),
        ("<a>", AddedToken(256, "<a>", False, True, True, False, True)),
        ("<b>", AddedToken(257, "<b>", True)),
    ]


@pytest.mark.parametrize("engine", ["reference", "gigatoken", "fastokens"])
def test_the_string_of_a_marked_token_in_a_text_is_text(tokenizer, engine):
    tool = added_tokens(tokenizer)["<tool>"].id
    assert tool in encoded(tokenizer, "a<tool>b", engine)
    ids = encoded(with_control_tokens(tokenizer, ["<tool>"]), "a<tool>b", engine)
    assert tool not in ids
    assert len(ids) > 3


def test_only_json_and_special_ids_change(tokenizer):
    marked = with_control_tokens(tokenizer, ["<tool>", "<|im_start|>"])
    assert marked.special_ids == (0, 1, 2, added_tokens(tokenizer)["<tool>"].id)
    kept = [
        f.name for f in dataclasses.fields(tokenizer) if f.name not in ("json", "added", "marked")
    ]
    assert [getattr(marked, name) for name in kept] == [getattr(tokenizer, name) for name in kept]
    assert marked.marked == ("<tool>",)
    before, after = json.loads(tokenizer.json), json.loads(marked.json)
    assert [token["special"] for token in after.pop("added_tokens")] == [True] * 4
    before.pop("added_tokens")
    assert before == after


def test_a_marked_token_counts_for_the_largest_emittable_id(make_tokenizer, bytes_model):
    added = [{"id": 256, "content": "<end>", "special": True} | FLAGS]
    tokenizer = make_tokenizer(bytes_model(), added_tokens=added)
    assert tokenizer.max_emittable_id == 255
    assert with_control_tokens(tokenizer, ["<end>"]).max_emittable_id == 256


@pytest.mark.parametrize("special", [True, False])
def test_ids_that_the_library_ignores_are_replaced_by_its_own(make_tokenizer, bytes_model, special):
    added = [
        {"id": 700 + i, "content": c, "special": special} | FLAGS for i, c in enumerate("中国")
    ]
    tokenizer = make_tokenizer(bytes_model(), added_tokens=added)
    assert {token.content: token.id for token in added_tokens(tokenizer).values()} == {
        "中": 256,
        "国": 257,
    }
    assert tokenizer.library().encode("国").ids == [257]


def test_the_json_stays_the_same_object_if_all_are_special(tokenizer):
    assert with_control_tokens(tokenizer, ["<|im_start|>"]).json is tokenizer.json
    assert with_control_tokens(tokenizer, []) == tokenizer


def test_a_string_that_is_no_added_token_is_refused(tokenizer):
    named = dataclasses.replace(tokenizer, name="tiny")
    with pytest.raises(TokenizerError, match=r"^tiny: 'hello' is not among its added tokens"):
        with_control_tokens(named, ["hello"])


def test_added_tokens_of_a_sentencepiece_model_are_its_control_pieces(tmp_path):
    model = train_sentencepiece(tmp_path, ["ab ba abba"], vocab_size=9)
    tokenizer = load_tokenizer(TokenizerSettings(path=str(model)))
    assert added_tokens(tokenizer) == {
        "<unk>": AddedToken(0, "<unk>", True),
        "<s>": AddedToken(1, "<s>", True),
        "</s>": AddedToken(2, "</s>", True),
    }
    assert with_control_tokens(tokenizer, ["</s>"]) == tokenizer
    with pytest.raises(TokenizerError, match="'ab' is not among"):
        with_control_tokens(tokenizer, ["ab"])


@pytest.mark.parametrize(
    ("strings", "expected"),
    [
        ([], [False, False, False, False, False]),
        ([""], [False, False, False, False, False]),
        (["</s>"], [False, True, False, False, False]),
        (["[SEP]", "a.b"], [False, False, True, False, False]),
        (["<｜end▁of▁sentence｜>", "</s>"], [False, True, False, True, False]),
        (["x\ny"], [False, False, False, False, True]),
    ],
)
def test_documents_that_contain_a_string_are_found(strings, expected):
    texts = ["", "a</s>b", "[SEP]", "好<｜end▁of▁sentence｜>", "axb </S> SEP a\nx\ny"]
    found = contains_any(pa.array(texts, pa.large_string()), strings)
    assert found.dtype == np.bool_
    assert found.tolist() == expected
