from __future__ import annotations

import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from tokmill.engines import cached
from tokmill.engines.cached import CachedReference
from tokmill.engines.pretokens.unigram import LONGEST_WORD_BYTES
from tokmill.engines.reference import TokenizersReference
from tokmill.engines.trial.hostile_texts import hostile_texts
from tokmill.errors import TokenizerError
from tokmill.settings.schema import TokenizerSettings
from tokmill.tokenizer.tokenizer import load_tokenizer

MARKS = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
SPLIT = {"type": "WhitespaceSplit"}
SPLIT_MARKS = {"type": "Sequence", "pretokenizers": [SPLIT, MARKS]}
BERT = {
    **{"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True},
    **{"strip_accents": None, "lowercase": True},
}
RUNS = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
NMT = {"type": "Sequence", "normalizers": [{"type": "Nmt"}, {"type": "NFKC"}, RUNS]}
LETTERS = sorted(set("abcdefghijklmnopqrstuvwxyz-.,!0123中国文é가"))
PIECES = {letter: i + 1 for i, letter in enumerate(LETTERS)}
PIECES |= {"##" + letter: len(PIECES) + i + 1 for i, letter in enumerate(LETTERS)}
WORDPIECE = {
    **{"type": "WordPiece", "vocab": {"[UNK]": 0} | PIECES, "unk_token": "[UNK]"},
    **{"continuing_subword_prefix": "##", "max_input_chars_per_word": 20},
}
TOKENS = ["<unk>", "▁", *LETTERS, "ab", "▁a", "---", "中国", "the", "▁the", "lo", "hel"]
UNIGRAM = {
    **{"type": "Unigram", "unk_id": 0, "byte_fallback": False},
    **{"vocab": [[token, -1.0 - i % 7] for i, token in enumerate(TOKENS)]},
}
SETTINGS = {
    "BERT": (WORDPIECE, {"type": "BertPreTokenizer"}, BERT),
    "BERT without a normalizer": (WORDPIECE, {"type": "BertPreTokenizer"}, None),
    "words of a regular expression": (WORDPIECE, {"type": "Whitespace"}, {"type": "NFC"}),
    "Unigram of words": (UNIGRAM, SPLIT_MARKS, {"type": "NFKC"}),
    "Unigram of spaces": (UNIGRAM, MARKS | {"prepend_scheme": "first"}, NMT),
    "Unigram without marks": (UNIGRAM, SPLIT, {"type": "Lowercase"}),
    "Unigram with bytes": (UNIGRAM | {"byte_fallback": True}, SPLIT_MARKS, None),
}


@pytest.fixture
def make(tmp_path):
    def tokenizer(name):
        model, pre_tokenizer, normalizer = SETTINGS[name]
        parts = {"model": model, "pre_tokenizer": pre_tokenizer, "normalizer": normalizer}
        (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": []} | parts))
        return load_tokenizer(TokenizerSettings(path=str(tmp_path), eos_token="a"))

    return tokenizer


def strings(texts):
    return pa.array(texts, pa.large_string())


def assert_equal(batch, expected):
    assert batch.ids.dtype == np.uint32
    assert batch.offsets.tolist() == expected.offsets.tolist()
    assert batch.ids.tolist() == expected.ids.tolist()


@pytest.mark.parametrize("name", SETTINGS)
def test_the_ids_are_those_of_the_reference(make, name):
    texts = hostile_texts(["<unk>", "[UNK]"])
    texts += ["the ----中国---- hello", "☃☃中☃ ☃", "x<unk>☃ <unk><unk>", "\u0301a", "the\0cab"]
    expected = TokenizersReference(make(name), parse=False).encode(strings(texts))
    engine = CachedReference(make(name), parse=False)
    assert_equal(engine.encode(strings(texts)), expected)
    assert_equal(engine.encode(strings(texts)), expected)  # from memory
    backwards = engine.encode(strings(texts[::-1])).lengths.tolist()
    assert backwards == expected.lengths.tolist()[::-1]


def test_no_documents_and_empty_documents_have_no_tokens(make):
    engine = CachedReference(make("BERT"), parse=False)
    assert engine.encode(strings([])).offsets.tolist() == [0]
    assert engine.encode(strings(["", ""])).offsets.tolist() == [0, 0, 0]
    assert engine.encode(strings(["", "a", "", " ", "b", ""])).lengths.tolist() == [
        0,
        1,
        0,
        0,
        1,
        0,
    ]


def test_a_slice_of_a_column_is_encoded_alone(make):
    engine = CachedReference(make("Unigram of words"), parse=False)
    column = strings(["the cab", "中国", "a", "x"])
    assert_equal(engine.encode(column.slice(1, 2)), engine.encode(strings(["中国", "a"])))


@pytest.mark.parametrize("call_bytes", [1, 30])
def test_calls_of_any_size_give_the_same_ids(make, monkeypatch, call_bytes):
    texts = strings(["the cab", "", "中国 中 国", "a" * 40, "a-b-c ---- x"])
    expected = CachedReference(make("Unigram of words"), parse=False).encode(texts)
    monkeypatch.setattr(cached, "_CALL_BYTES", call_bytes)
    assert_equal(CachedReference(make("Unigram of words"), parse=False).encode(texts), expected)


def test_a_full_table_is_replaced(make, monkeypatch):
    monkeypatch.setattr(cached, "_TABLE_BYTES", 1)
    monkeypatch.setattr(cached, "_CALL_BYTES", 8)
    texts = strings(["the cab", "the dog", "a"])
    engine = CachedReference(make("BERT"), parse=False)
    assert_equal(engine.encode(texts), TokenizersReference(make("BERT"), parse=False).encode(texts))
    assert list(engine._table._slots) == [b"the ", b"dog", b"a"]  # of the last step alone


def test_a_word_too_long_for_exact_sums_is_one_pretoken(make, monkeypatch):
    monkeypatch.setattr(cached, "LONGEST_WORD_BYTES", 4)
    engine = CachedReference(make("Unigram of words"), parse=False)
    assert engine.encode(strings(["中a中a 中a"])).ids.tolist() == (
        TokenizersReference(make("Unigram of words"), parse=False)
        .encode(strings(["中a中a 中a"]))
        .ids.tolist()
    )
    assert "中a中a ".encode() in engine._table._slots
    assert "中a".encode() not in engine._table._slots


@pytest.mark.parametrize("longer", [0, 3])
def test_a_word_of_any_length_has_the_ids_of_the_reference(make, longer):
    # With equal scores everywhere, and unknown characters across all pretokens.
    texts = strings(
        ["中" * (LONGEST_WORD_BYTES // 3 + longer) + " 国", "☃" * 9000, "中" + "-" * 3000 + "国a"]
    )
    tokenizer = make("Unigram of words")
    engine = CachedReference(tokenizer, parse=False)
    assert_equal(engine.encode(texts), TokenizersReference(tokenizer, parse=False).encode(texts))


def test_threads_get_the_ids_that_one_gets(make):
    texts = [
        strings([f"the {i}{j} cab中{chr(0x4E00 + i * 40 + j)}国" for j in range(40)])
        for i in range(40)
    ]
    tokenizer = make("Unigram of words")
    expected = [TokenizersReference(tokenizer, parse=False).encode(text) for text in texts]
    engine = CachedReference(tokenizer, parse=False)
    with ThreadPoolExecutor(4) as pool:
        for batch, right in zip(pool.map(engine.encode, texts * 3), expected * 3, strict=True):
            assert_equal(batch, right)


def test_a_refusal_names_the_engine_and_the_tokenizer(tokenizer):
    with pytest.raises(TokenizerError) as caught:
        CachedReference(dataclasses.replace(tokenizer, name="tiny"), parse=False)
    assert str(caught.value) == (
        "engine tokenizers+cache refuses tiny: its added token '<tool>' may cross a split point"
    )
