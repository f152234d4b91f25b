from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from sentencepiece import SentencePieceProcessor
from tokenizers import Tokenizer as Library

import tokmill.engines.reference as module
from tests.fixtures.tokenizers import train_sentencepiece
from tokmill.engines.reference import load_reference
from tokmill.errors import TokenizerError, UsageError
from tokmill.settings.schema import TokenizerSettings
from tokmill.tokenizer.hostile_texts import hostile_texts
from tokmill.tokenizer.tokenizer import load_tokenizer


def strings(texts: list[str]) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


def documents(batch) -> list[list[int]]:
    return [
        batch.ids[batch.offsets[i] : batch.offsets[i + 1]].tolist()
        for i in range(batch.n_documents)
    ]


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory):
    directory: Path = tmp_path_factory.mktemp("sp")
    texts = ["ab ba abba 猫", "ba ba ab"]
    model = train_sentencepiece(directory, texts, vocab_size=270, byte_fallback=True)
    return load_tokenizer(TokenizerSettings(path=str(model)))


def test_documents_are_encoded_one_by_one_into_flat_ids(tokenizer):
    texts = ["hello world", "", "猫"]
    batch = load_reference(tokenizer, parse=False).encode(strings(texts))
    library = Library.from_str(tokenizer.json)
    assert documents(batch) == [library.encode(text).ids for text in texts]
    assert (batch.ids.dtype, batch.offsets.dtype) == (np.uint32, np.int64)


def test_an_added_token_that_is_not_special_is_always_itself(tokenizer):
    tool = Library.from_str(tokenizer.json).token_to_id("<tool>")
    for parse in (False, True):
        ids = load_reference(tokenizer, parse=parse).encode(strings(["a<tool>b"])).ids
        assert ids.tolist()[1] == tool


@pytest.mark.parametrize("call_bytes", [1, 10, 1000])
def test_the_ids_do_not_depend_on_how_a_batch_is_split_into_calls(
    tokenizer, monkeypatch, call_bytes
):
    engine = load_reference(tokenizer, parse=False)
    texts = strings([*hostile_texts([]), "", ""])
    expected = documents(engine.encode(texts))
    monkeypatch.setattr(module, "_CALL_BYTES", call_bytes)
    assert documents(engine.encode(texts)) == expected
    assert documents(engine.encode(texts.slice(3, 50))) == expected[3:53]


def test_sentencepiece_is_encoded_by_its_own_library(sentencepiece):
    engine = load_reference(sentencepiece, parse=False, n_threads=2)
    texts = hostile_texts(["<s>", "</s>"])
    library = SentencePieceProcessor(model_proto=sentencepiece.data)
    batch = engine.encode(strings(texts))
    assert documents(batch) == [library.encode(text) for text in texts]
    assert documents(engine.encode(strings([]))) == []


def test_sentencepiece_never_makes_a_control_token_of_text(sentencepiece):
    engine = load_reference(sentencepiece, parse=False, n_threads=1)
    ids = engine.encode(strings(["a</s>b<s><unk>"])).ids.tolist()
    assert not {1, 2} & set(ids)


def test_parsing_control_tokens_is_refused_for_sentencepiece(sentencepiece):
    with pytest.raises(UsageError, match="SentencePiece never parses control tokens in text"):
        load_reference(sentencepiece, parse=True, n_threads=1)


def test_other_bytes_than_a_sentencepiece_model_are_refused(sentencepiece):
    broken = dataclasses.replace(sentencepiece, name="m.model", data=b"\x0a\x05")
    with pytest.raises(TokenizerError, match=r"^m\.model: not a SentencePiece model: "):
        load_reference(broken, parse=False, n_threads=1)
