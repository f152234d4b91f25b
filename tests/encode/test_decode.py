from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece import SentencePieceTrainer

from tokmill.config import TokenizerSettings
from tokmill.encode.decode import load_decoder, runs
from tokmill.encode.engine import load_engine
from tokmill.encode.hostile import hostile_texts
from tokmill.encode.tokenizer import load_tokenizer


def test_decoding_gives_back_every_hostile_text(tokenizer):
    texts = hostile_texts(["<eos>", "<tool>"])
    engine = load_engine("tokenizers", tokenizer, control_in_text="text", n_threads=1)
    batch = engine.encode(pa.array(texts, pa.large_string()))
    decode = load_decoder(tokenizer)
    bounds = itertools.pairwise(batch.offsets)
    assert [decode(batch.ids[start:stop].tolist()) for start, stop in bounds] == texts


def test_control_tokens_are_shown(tokenizer):
    assert load_decoder(tokenizer)([1, 0]) == "<bos><eos>"


def test_a_sentencepiece_model_is_decoded_by_its_own_library(tmp_path: Path):
    SentencePieceTrainer.train(
        sentence_iterator=iter(["ab ba abba", "ba ba ab"]),
        model_prefix=str(tmp_path / "m"),
        vocab_size=10,
        model_type="bpe",
        minloglevel=2,
    )
    given_tokenizer = load_tokenizer(TokenizerSettings(path=str(tmp_path / "m.model")))
    engine = load_engine("tokenizers", given_tokenizer, control_in_text="text", n_threads=1)
    ids = engine.encode(pa.array(["ab ba"], pa.large_string())).ids
    assert load_decoder(given_tokenizer)(ids.tolist()) == "ab ba"


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([], []),
        ([5], [(False, [5])]),
        ([0], [(True, [0])]),
        ([1, 5, 6, 0], [(True, [1]), (False, [5, 6]), (True, [0])]),
        ([0, 1, 5, 0, 0], [(True, [0, 1]), (False, [5]), (True, [0, 0])]),
    ],
)
def test_ids_are_split_into_runs_of_control_tokens_and_of_others(ids, expected):
    assert list(runs(ids, [0, 1])) == expected


@given(st.lists(st.integers(0, 4)), st.sets(st.integers(0, 4)))
def test_runs_hold_every_id_in_order_and_alternate(ids, control):
    found = list(runs(ids, sorted(control)))
    assert [token for _, run in found for token in run] == ids
    assert all(run and {token in control for token in run} == {state} for state, run in found)
    assert all(a[0] != b[0] for a, b in itertools.pairwise(found))
