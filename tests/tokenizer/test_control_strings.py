from __future__ import annotations

import dataclasses
import json

import numpy as np
import pyarrow as pa
import pytest
from sentencepiece import SentencePieceTrainer

from tokmill.tokenizer.control_strings import contains_control, control_strings
from tokmill.tokenizer.tokenizer import Token, Tokenizer

TOKENIZER = Tokenizer(
    name="x",
    kind="json",
    data=b"",
    json="{}",
    sha256="",
    vocab_size=10,
    eos=Token(1, "</s>"),
    bos=None,
    special_ids=(),
    chat_template=None,
    max_emittable_id=9,
)


def test_the_strings_are_those_of_special_added_tokens_by_id():
    added = [
        {"id": 2, "content": "<b>", "special": True},
        {"id": 1, "content": "<a>", "special": True},
        {"id": 3, "content": "<tool>", "special": False},
    ]
    given = dataclasses.replace(TOKENIZER, json=json.dumps({"added_tokens": added}))
    assert control_strings(given) == ["<a>", "<b>"]


def test_a_tokenizer_without_added_tokens_has_none():
    assert control_strings(TOKENIZER) == []


def test_the_strings_of_a_sentencepiece_model_are_its_control_pieces(tmp_path):
    SentencePieceTrainer.train(
        sentence_iterator=iter(["ab ba abba"]),
        model_prefix=str(tmp_path / "m"),
        vocab_size=9,
        model_type="bpe",
        minloglevel=2,
    )
    data = (tmp_path / "m.model").read_bytes()
    given = dataclasses.replace(TOKENIZER, kind="sentencepiece", data=data, json="")
    assert control_strings(given) == ["<unk>", "<s>", "</s>"]


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
def test_documents_that_hold_a_string_are_found(strings, expected):
    texts = ["", "a</s>b", "[SEP]", "好<｜end▁of▁sentence｜>", "axb </S> SEP a\nx\ny"]
    found = contains_control(pa.array(texts, pa.large_string()), strings)
    assert found.dtype == np.bool_
    assert found.tolist() == expected


def test_a_slice_of_a_batch_is_judged_alone():
    text = pa.array(["</s>", "x", "</s>"], pa.large_string()).slice(1, 1)
    assert contains_control(text, ["</s>"]).tolist() == [False]


def test_thousands_of_strings_are_one_search():
    text = pa.array(["a<unused2999>", "a<unused3000>"], pa.large_string())
    strings = [f"<unused{n}>" for n in range(3000)]
    assert contains_control(text, strings).tolist() == [True, False]
