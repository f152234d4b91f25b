"""Tokenizers without a tokenizer.json: their ids are those of the class that transformers has."""

from __future__ import annotations

import json
import sys

import pytest
from tokenizers import Tokenizer as Library

from tests.cli.conftest import SAMPLES
from tokmill.errors import TokenizerError
from tokmill.settings.schema import TokenizerSettings
from tokmill.tokenizer.hostile_texts import hostile_texts
from tokmill.tokenizer.tokenizer import load_tokenizer

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] hello world ##s ##ing 12 ##3 , ! 中 文 café cafe a b ##b"


def write(folder, config, vocab, merges=None):
    folder.mkdir()
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    name = "vocab.txt" if isinstance(vocab, str) else "vocab.json"
    (folder / name).write_text(vocab if isinstance(vocab, str) else json.dumps(vocab))
    if merges is not None:
        (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]))
    return str(folder)


def load(path):
    return load_tokenizer(TokenizerSettings(path=path))


def refusal(path):
    with pytest.raises(TokenizerError) as caught:
        load(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_vocab_and_merges_give_the_ids_of_the_tokenizer_json_that_they_are_from(tmp_path):
    pytest.importorskip("transformers")
    content = json.loads((SAMPLES / "tokenizer" / "tokenizer.json").read_bytes())
    # Qwen2's class splits digits one by one: elsewhere it is the pattern of this tokenizer.
    pattern = content["pre_tokenizer"]["pretokenizers"][0]["pattern"]
    pattern["Regex"] = pattern["Regex"].replace(r"\p{N}{1,3}", r"\p{N}")
    content["normalizer"] = {"type": "NFC"}
    added = {str(token.pop("id")): token for token in content["added_tokens"]}
    config = {"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": added}
    config |= dict.fromkeys(("eos_token", "unk_token", "pad_token"), "<eos>")
    merges = [" ".join(merge) for merge in content["model"]["merges"]]
    loaded = load(write(tmp_path / "slow", config, content["model"]["vocab"], merges))
    assert (loaded.eos.id, loaded.eos.content) == (2, "<eos>")
    content["added_tokens"] = [{"id": int(id_), **token} for id_, token in added.items()]
    expected, library = Library.from_str(json.dumps(content)), loaded.library()
    assert library.get_vocab() == expected.get_vocab()
    texts = [*hostile_texts([token["content"] for token in added.values()])]
    texts += (SAMPLES / "records.jsonl").read_text(errors="replace").splitlines()
    for text in texts:
        assert library.encode(text).ids == expected.encode(text).ids


def test_a_vocab_txt_gives_the_ids_of_the_tokenizer_in_python(tmp_path):
    """`BertTokenizerLegacy` shares no code with what the vocabulary is converted by."""
    legacy = pytest.importorskip("transformers.models.bert.tokenization_bert_legacy")
    vocab = "\n".join(WORDS.split())
    config = {"tokenizer_class": "BertTokenizer", "do_lower_case": False}
    loaded = load(write(tmp_path / "slow", config, vocab))
    python = legacy.BertTokenizerLegacy(tmp_path / "slow" / "vocab.txt", do_lower_case=False)
    library = loaded.library()
    for text in ["hellos worlding", "abb, 123!", "中文 café", *WORDS.split(), "[SEP] hello"]:
        assert library.encode(text).ids == python(text, add_special_tokens=False).input_ids


def test_a_class_that_cannot_be_converted_is_one_line(tmp_path):
    pytest.importorskip("transformers")
    vocab, merges = {"a": 0, "b": 1, "ab": 2, "<unk>": 3}, ["a b"]
    python = write(tmp_path / "python", {"tokenizer_class": "CTRLTokenizer"}, vocab, merges)
    assert "CTRLTokenizer runs in Python code only" in refusal(python)
    unknown = write(tmp_path / "unknown", {"tokenizer_class": "FooTokenizer"}, vocab, merges)
    assert "transformers cannot load FooTokenizer from these files: " in refusal(unknown)
    no_unknown = write(tmp_path / "words", {"tokenizer_class": "BertTokenizer"}, "a\nb")
    assert "cannot encode text: WordPiece error: Missing [UNK] token" in refusal(no_unknown)
    own_code = {"tokenizer_class": "Foo", "auto_map": {"AutoTokenizer": ["planted.Foo", None]}}
    planted = write(tmp_path / "planted", own_code, vocab, merges)
    (tmp_path / "planted" / "planted.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    assert "contains custom code" in refusal(planted)
    assert not (tmp_path / "ran").exists()


def test_a_conversion_with_other_ids_is_refused(tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers")
    encode = transformers.GPT2Tokenizer._encode_plus

    def encode_lower(self, text, *args, **options):
        return encode(self, text.lower(), *args, **options)

    monkeypatch.setattr(transformers.GPT2Tokenizer, "_encode_plus", encode_lower)
    letters = {letter: id_ for id_, letter in enumerate("abcdefghijklmnopqrstuvwxyzHIW")}
    path = write(tmp_path / "slow", {"tokenizer_class": "GPT2Tokenizer"}, letters, [])
    assert "gives other ids than GPT2Tokenizer for " in refusal(path)


def test_files_whose_class_is_not_named_are_not_guessed(tmp_path):
    path = write(tmp_path / "slow", {}, {"a": 0}, [])
    assert "no file names the class of transformers that reads the others" in refusal(path)


def test_without_transformers_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    path = write(tmp_path / "slow", {"tokenizer_class": "GPT2Tokenizer"}, {"a": 0}, [])
    assert refusal(path) == (
        f"{path}: no tokenizer.json here; to make one of GPT2Tokenizer's files, install "
        "tokmill[transformers]"
    )
