"""The engine for WordPiece, which is an extra."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from tokmill.cache import keep
from tokmill.engines import comparison
from tokmill.engines.choice import CharacterComparison
from tokmill.engines.choose import EngineRequest, choose_engine
from tokmill.engines.reference import load_reference
from tokmill.settings.schema import TokenizerSettings
from tokmill.tokenizer.hostile_texts import hostile_texts
from tokmill.tokenizer.tokenizer import load_tokenizer

pytest.importorskip("nanotoken")

from tokmill.engines.nanotoken import Nanotoken

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
PIECES = ("the", "cat", "hat", "##s", "##ing", "un", "##e", "e", "猫", "##猫", "!", "a", "##b")


@pytest.fixture(params=[False, True], ids=["cased", "uncased"])
def words(request, tmp_path):
    """A tokenizer with the steps of BERT, and a word that is no special token."""
    tokens = [*SPECIAL, *PIECES]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [(content, True) for content in SPECIAL] + [("<tool>", False)]
    content = {
        "version": "1.0", "truncation": None, "padding": None, "decoder": None,
        "added_tokens": [
            {"id": id_, "content": string, **flags, "special": special}
            for id_, (string, special) in zip((0, 1, 2, 3, len(tokens)), added, strict=True)
        ],
        "normalizer": {
            "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
            "strip_accents": None, "lowercase": request.param,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": None,
        "model": {
            "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {token: id_ for id_, token in enumerate(tokens)},
        },
    }  # fmt: skip
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    return load_tokenizer(TokenizerSettings(path=str(tmp_path), eos_token="[SEP]"))


@pytest.mark.parametrize("parse", [False, True])
def test_it_gives_the_ids_of_the_reference_on_hostile_texts(words, parse):
    texts = [*hostile_texts([*SPECIAL, "<tool>"]), "The CATS un é É", "cats" * 30, "ab" * 60]
    text = pa.array(texts, pa.large_string())
    expected = load_reference(words, parse=parse).encode(text)
    batch = Nanotoken(words, parse=parse).encode(text)
    assert batch.ids.tolist() == expected.ids.tolist()
    assert batch.offsets.tolist() == expected.offsets.tolist()
    assert (batch.ids.dtype, batch.offsets.dtype) == (expected.ids.dtype, expected.offsets.dtype)


def test_it_takes_empty_batches_and_slices(words):
    engine = Nanotoken(words, parse=False)
    whole = pa.array(["the cat", "", "hats", ""], pa.large_string())
    alone = [engine.encode(whole.slice(i, 1)).ids.tolist() for i in range(4)]
    assert engine.encode(whole.slice(1, 3)).ids.tolist() == alone[1] + alone[2] + alone[3]
    assert engine.encode(whole.slice(0, 0)).offsets.tolist() == [0]


@pytest.mark.parametrize("asked", ["auto", "nanotoken"])
def test_a_run_with_much_text_takes_it(words, asked):
    key = comparison._cache_key(words, comparison._versions(words, "nanotoken"))
    keep(key, CharacterComparison().as_json())  # to compare all characters takes 5 s
    texts = ["the cats and the hat 猫", "uncats!"] * 20
    request = EngineRequest(words, asked, "text", 1, 10 << 20, lambda _: texts)
    assert choose_engine(request, has_continuations=False).name == "nanotoken"
