"""Where tokenizer_config.json contradicts tokenizer.json, a note says what transformers 5 does."""

from __future__ import annotations

import json
import re

import pytest
from tokenizers.pre_tokenizers import ByteLevel

from tokmill.settings.schema import TokenizerSettings
from tokmill.tokenizer.tokenizer import load_tokenizer

EOS = {"id": 900, "content": "<eos>", "special": True, "single_word": False, "lstrip": False}
EOS |= {"rstrip": False, "normalized": False}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
CASED = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
CASED |= {"strip_accents": None, "lowercase": False}


def byte_level():
    tokens = [*sorted(ByteLevel.alphabet()), "12", "he"]
    vocab = {token: id_ for id_, token in enumerate(tokens)}
    model = {"type": "BPE", "vocab": vocab, "merges": [["1", "2"], ["h", "e"]]}
    return {"added_tokens": [EOS], "normalizer": None, "pre_tokenizer": BYTES, "model": model}


def word_piece():
    tokens = ["[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]", "Hello", "hello", "world", "H", "h"]
    vocab = {token: id_ for id_, token in enumerate(tokens)}
    model = {"type": "WordPiece", "vocab": vocab, "unk_token": "[UNK]"}
    model |= {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    parts = {"normalizer": CASED, "pre_tokenizer": {"type": "BertPreTokenizer"}}
    return {"added_tokens": [EOS], **parts, "model": model}


CASES = {
    "GPT-2's": (byte_level, {"tokenizer_class": "GPT2Tokenizer"}, ""),
    "a space before": (
        byte_level,
        {"tokenizer_class": "GPT2TokenizerFast", "add_prefix_space": True},
        "pre_tokenizer",
    ),
    "no class": (byte_level, {"add_prefix_space": True}, ""),
    "a class that reads the file": (
        byte_level,
        {"tokenizer_class": "PreTrainedTokenizerFast", "add_prefix_space": True},
        "",
    ),
    "Qwen's on GPT-2's": (
        byte_level,
        {"tokenizer_class": "Qwen2Tokenizer"},
        "normalizer and pre_tokenizer",
    ),
    "cased": (word_piece, {"tokenizer_class": "BertTokenizer", "do_lower_case": False}, ""),
    "lower case": (
        word_piece,
        {"tokenizer_class": "BertTokenizer", "do_lower_case": True},
        "normalizer",
    ),
    "lower case by default": (word_piece, {"tokenizer_class": "BertTokenizer"}, "normalizer"),
}


def load(folder, make, config):
    (folder / "tokenizer.json").write_text(json.dumps(make()))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return load_tokenizer(TokenizerSettings(path=str(folder), eos_token="<eos>"))


@pytest.mark.parametrize(("make", "config", "keys"), CASES.values(), ids=CASES)
def test_the_note_says_what_transformers_does_and_there_is_none_otherwise(
    tmp_path, make, config, keys
):
    transformers = pytest.importorskip("transformers")
    found = load(tmp_path, make, config)
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    ours = found.library()
    texts = ["Hello world", "hello 1212", " he", "he"]
    differ = [
        text
        for text in texts
        if ours.encode(text, add_special_tokens=False).ids
        != theirs(text, add_special_tokens=False).input_ids
    ]
    assert bool(differ) == bool(keys)
    if not keys:
        assert found.notes == ()
        return
    (note,) = found.notes
    assert f"takes the {keys} of {config['tokenizer_class'].removesuffix('Fast')} (" in note
    shown = re.search(r'others: (".*") is (\[.*\]) here, (\[.*\]) there', note)
    example = json.loads(shown[1])
    here = ours.encode(example, add_special_tokens=False).ids
    there = theirs(example, add_special_tokens=False).input_ids
    assert here != there
    assert [shown[2], shown[3]] == [
        f"[{', '.join(map(str, ids[:6]))}{', …' if len(ids) > 6 else ''}]" for ids in (here, there)
    ]


def test_options_of_a_wrong_kind_are_one_line_or_nothing(tmp_path):
    config = {"tokenizer_class": "BertTokenizer", "do_lower_case": "no", "strip_accents": None}
    assert len(load(tmp_path, word_piece, config).notes) == 1
    of_a_kind = {"tokenizer_class": "BertTokenizer", "strip_accents": "x"}
    for odd in ({"tokenizer_class": 7}, {"tokenizer_class": ["BertTokenizer"]}, of_a_kind):
        assert load(tmp_path, word_piece, odd).notes == ()
