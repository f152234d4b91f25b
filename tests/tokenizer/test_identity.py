"""The identity of a tokenizer: what decides ids and nothing else, and differences named by key."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
from tokenizers import Tokenizer as Library
from tokenizers import pre_tokenizers

from tests.fixtures.tokenizers import train_sentencepiece
from tokmill.settings.schema import TokenizerSettings
from tokmill.tokenizer.control_tokens import with_control_tokens
from tokmill.tokenizer.tokenizer import file_text, load_tokenizer, tokenizer_differences

PROBES = ("ab abc a\u030a Å AB <tool>x <eos> <think> a  b", " ab", "zzabc", "abab 12 \nab", "1a")
FLAGS = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)


def bpe():
    """Return a tokenizer.json with merges as pairs and every default written out."""
    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "ab", "abc", "Ġab", "bc", "1a", "12"]
    added = [("<eos>", True), ("<tool>", False), ("<think>", False)]
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {token: id_ for id_, token in enumerate(tokens)},
        "merges": [["a", "b"], ["ab", "c"], ["Ġ", "ab"], ["b", "c"], ["1", "a"], ["1", "2"]],
    }
    step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": len(tokens) + i, "content": content, **FLAGS, "special": special}
            for i, (content, special) in enumerate(added)
        ],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": step,
        "post_processor": None,
        "decoder": step,
        "model": model,
    }


def load(folder, content, name="t"):
    path = folder / name
    path.mkdir()
    text = content if isinstance(content, str) else json.dumps(content)
    (path / "tokenizer.json").write_text(text)
    return load_tokenizer(TokenizerSettings(path=str(path), eos_token="<eos>"))


def changed(key, value):
    """Return a function that changes a value at a key with points."""

    def change(content):
        *parents, last = key.split(".")
        inside = content
        for parent in parents:
            inside = inside[int(parent) if parent.isdigit() else parent]
        inside[last] = value(inside[last]) if callable(value) else value

    return change


def without(key):
    def change(content):
        *parents, last = key.split(".")
        inside = content
        for parent in parents:
            inside = inside[parent]
        del inside[last]

    return change


def saved_by_the_library(content):
    return json.loads(Library.from_str(json.dumps(content)).to_str())


ADDS_EOS = {
    "type": "TemplateProcessing",
    "single": [{"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {},
}
TRUNCATES = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
PADS = {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None}
PADS |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "<eos>"}
MERGES = ["a b", "ab c", "Ġ ab", "b c", "1 a", "1 2"]
SAME_STEP = {"type": "Sequence", "pretokenizers": [bpe()["pre_tokenizer"]]}

DECIDE_NOTHING = {
    "post_processor": changed("post_processor", ADDS_EOS),
    "truncation": changed("truncation", TRUNCATES),
    "padding": changed("padding", PADS),
    "decoder": changed("decoder", {"type": "Fuse"}),
    "no decoder": changed("decoder", None),
    "version left out": without("version"),
    "no prefix": changed("model.continuing_subword_prefix", ""),
    "no suffix": changed("model.end_of_word_suffix", ""),
    "a default left out": without("model.ignore_merges"),
    "all defaults of a step left out": without("pre_tokenizer.use_regex"),
    "an option of places": changed("pre_tokenizer.trim_offsets", False),
    "merges as strings": changed("model.merges", MERGES),
    "a comment among the merges": changed("model.merges", ["#version: 0.2", *MERGES]),
    "a sequence of one": changed("pre_tokenizer", SAME_STEP),
    "order of the vocabulary": changed("model.vocab", lambda vocab: dict(reversed(vocab.items()))),
    "type left out": without("model.type"),
}


@pytest.mark.parametrize("change", DECIDE_NOTHING.values(), ids=DECIDE_NOTHING)
def test_what_decides_no_id_is_not_in_the_identity(tmp_path, change):
    content = bpe()
    change(content)
    there, here = load(tmp_path, bpe()), load(tmp_path, content, "again")
    assert here.identity == there.identity
    assert tokenizer_differences(there, here) == ""


def test_a_file_that_the_library_has_saved_again_is_the_same_tokenizer(tmp_path):
    again = load(tmp_path, Library.from_str(json.dumps(bpe())).to_str(), "again")
    assert again.identity == load(tmp_path, bpe()).identity


def _added(number, values):
    def change(content):
        content["added_tokens"][number] |= values

    return change


def _with_word(content):
    content["model"]["vocab"]["abab"] = len(content["model"]["vocab"]) + 3
    content["model"]["merges"].append(["ab", "ab"])


DECIDE_IDS = {
    "a token has another id": (
        changed("model.vocab", lambda v: {**v, "ab": v["abc"], "abc": v["ab"]}),
        "vocab: ab is 256 there, 257 here (and 1 more)",
    ),
    "a token more": (_with_word, None),
    "order of added tokens that have no id of their own": (
        changed("added_tokens", lambda tokens: tokens[::-1]),
        "added_tokens: <eos> is 262 there, 264 here (and 1 more)",
    ),
    "other order of merges": (
        changed("model.merges", lambda merges: merges[::-1]),
        "merges: number 0 is a + b there, 1 + 2 here",
    ),
    "a merge less": (
        changed("model.merges", lambda merges: merges[:-1]),
        "merges: 6 there, 5 here",
    ),
    "another merge": (
        changed("model.merges", lambda merges: [merges[0], ["a", "bc"], *merges[2:]]),
        "merges: number 1 is ab + c there, a + bc here",
    ),
    "no normalizer": (changed("normalizer", None), "normalizer: NFC there, none here"),
    "another normalizer": (
        changed("normalizer", {"type": "NFD"}),
        "normalizer: NFC there, NFD here",
    ),
    "two normalizers": (
        changed(
            "normalizer",
            {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]},
        ),
        "normalizer: NFC there, NFC and Lowercase here",
    ),
    "a space before": (
        changed("pre_tokenizer.add_prefix_space", True),
        "pre_tokenizer: add_prefix_space of ByteLevel: false there, true here",
    ),
    "no splitting": (
        changed("pre_tokenizer.use_regex", False),
        "pre_tokenizer: use_regex of ByteLevel: true there, false here",
    ),
    "digits": (
        changed(
            "pre_tokenizer",
            lambda step: {
                "type": "Sequence",
                "pretokenizers": [{"type": "Digits", "individual_digits": True}, step],
            },
        ),
        "pre_tokenizer: ByteLevel there, Digits and ByteLevel here",
    ),
    "ignores merges": (
        lambda content: content["model"].update(ignore_merges=True, merges=[]),
        "model.ignore_merges is false there, true here; merges: 6 there, 0 here",
    ),
    "a suffix": (
        changed("model.end_of_word_suffix", "c"),
        "model.end_of_word_suffix is none there, c here",
    ),
    "no added token": (
        changed("added_tokens", lambda tokens: tokens[:1] + tokens[2:]),
        None,
    ),
    "another string": (
        _added(2, {"content": "<other>"}),
        "added_tokens: <think> is 264 there, absent here (and 1 more)",
    ),
    "takes space": (_added(2, {"rstrip": True, "content": "<think>"}), None),
    "takes space before": (
        _added(1, {"lstrip": True, "content": "<tool>"}),
        "added_tokens: <tool>: lstrip: false there, true here",
    ),
    "a word alone": (
        _added(1, {"single_word": True}),
        "added_tokens: <tool>: single_word: false there, true here",
    ),
    "special": (
        _added(1, {"special": True}),
        "added_tokens: <tool>: special: false there, true here",
    ),
}


def ids_of(tokenizer):
    """Return ids of texts, with the strings of special tokens as text and as tokens."""
    found = []
    for as_text in (True, False):
        library = tokenizer.library()
        library.encode_special_tokens = as_text
        found += [library.encode(text, add_special_tokens=False).ids for text in PROBES]
    return found


@pytest.mark.parametrize(("change", "told"), DECIDE_IDS.values(), ids=DECIDE_IDS)
def test_what_decides_ids_is_in_the_identity_and_is_named(tmp_path, change, told):
    content = copy.deepcopy(bpe())
    change(content)
    there, here = load(tmp_path, bpe()), load(tmp_path, content, "other")
    assert here.identity != there.identity
    lines = tokenizer_differences(there, here)
    assert lines == told if told else lines
    if here.vocab_size == there.vocab_size and "suffix" not in lines:
        assert ids_of(here) != ids_of(there)


@pytest.mark.parametrize("kind", ["Unigram", "WordPiece", "WordLevel"])
def test_the_flags_of_each_model_are_in_the_identity(tmp_path, kind):
    tokens = ["[UNK]", "a", "##b", "b", "<eos>"]
    vocab = {token: id_ for id_, token in enumerate(tokens)}
    models = {
        "Unigram": {"vocab": [[token, -1.5 * i] for i, token in enumerate(tokens)], "unk_id": 0},
        "WordPiece": {"vocab": vocab, "unk_token": "[UNK]", "max_input_chars_per_word": 100}
        | {"continuing_subword_prefix": "##"},
        "WordLevel": {"vocab": vocab, "unk_token": "[UNK]"},
    }
    changes = {
        "Unigram": {"unk_id": 1},
        "WordPiece": {"max_input_chars_per_word": 1},
        "WordLevel": {"unk_token": "a"},
    }
    content = {"added_tokens": [], "normalizer": None, "pre_tokenizer": None}
    there = content | {"model": {"type": kind, **models[kind]}}
    here = content | {"model": {"type": kind, **models[kind], **changes[kind]}}
    first = load(tmp_path, there)
    again = load(tmp_path, saved_by_the_library(there), "again")
    other = load(tmp_path, here, "other")
    assert first.identity == again.identity != other.identity
    assert tokenizer_differences(first, other).startswith(f"model.{next(iter(changes[kind]))}")


def test_scores_that_the_library_reads_with_an_error_in_the_last_bit_are_the_same(tmp_path):
    vocab = [["<eos>", 0.0], ["a", -3.9598512649536133], ["b", -2.0122928619384766]]
    content = {"added_tokens": [], "model": {"type": "Unigram", "vocab": vocab, "unk_id": 0}}
    again = copy.deepcopy(content)
    again["model"]["vocab"][1][1] = -3.9598512649536137
    other = copy.deepcopy(content)
    other["model"]["vocab"][1][1] = -3.95986
    first = load(tmp_path, content)
    assert load(tmp_path, again, "again").identity == first.identity
    assert "scores: number 1 is" in tokenizer_differences(first, load(tmp_path, other, "other"))


def test_a_model_of_sentencepiece_is_another_tokenizer_than_a_json(tmp_path):
    model = train_sentencepiece(tmp_path, ["the cat sat on the mat", "the dog"], vocab_size=40)
    found = load_tokenizer(TokenizerSettings(path=str(model)))
    lines = tokenizer_differences(load(tmp_path, bpe()), found)
    assert lines == "model.type is BPE there, SentencePiece's 2 here"


def test_a_variant_with_more_control_tokens_has_the_identity_of_its_file(tmp_path):
    tokenizer = load(tmp_path, bpe())
    marked = with_control_tokens(tokenizer, ["<think>"])
    assert marked.identity == tokenizer.identity
    assert json.loads(file_text(marked)) == json.loads(tokenizer.json)
    other = bpe()
    other["normalizer"] = None
    lines = tokenizer_differences(marked, load(tmp_path, other, "other"))
    assert lines == "normalizer: NFC there, none here"


def hostile_merges():
    """Return a tokenizer.json with tokens that look like the end of its merges, or their key."""
    content = bpe()
    vocab = content["model"]["vocab"]
    for token in ('"merges":[', "]]", "merges", '\\"', "]"):
        vocab.setdefault(token, max(vocab.values()) + 1)
    for i, added in enumerate(content["added_tokens"]):
        added["id"] = max(vocab.values()) + 1 + i
    content["model"]["merges"] += [["1", "]"]]
    vocab["1]"] = max(vocab.values()) + 1
    for i, added in enumerate(content["added_tokens"]):
        added["id"] = max(vocab.values()) + 1 + i
    return content


def unigram():
    """Return a tokenizer.json without merges."""
    content = bpe()
    content["model"] = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.5]]}
    for i, added in enumerate(content["added_tokens"]):
        added["id"] = 2 + i
    return content


@pytest.mark.parametrize("make", [bpe, hostile_merges, unigram])
@pytest.mark.parametrize("spaces", [None, 1])
def test_what_is_kept_of_a_tokenizer_changes_nothing_of_it(tmp_path, monkeypatch, make, spaces):
    text = json.dumps(make(), indent=spaces)
    fresh = load(tmp_path, text, "a")
    monkeypatch.setattr("tokmill.tokenizer.tokenizer._KEPT_FROM", 0)
    first, again = (load(tmp_path, text, name) for name in ("b", "c"))
    assert replace(first, name="") == replace(fresh, name="") == replace(again, name="")
    assert tokenizer_differences(fresh, again) == ""
    assert (
        again.library().encode("ab abc 1] <tool>").ids
        == fresh.library().encode("ab abc 1] <tool>").ids
    )
    other = make()
    other["added_tokens"][1]["content"] = "<call>"
    assert load(tmp_path, other, "d").identity != fresh.identity


@pytest.mark.parametrize(
    "forged",
    [
        {},
        {"identity": 7, "start": 0, "stop": 2},
        {"identity": "0", "start": 5, "stop": 9},
        {"a": 1},
    ],
)
def test_what_is_kept_in_another_form_is_derived_again(tmp_path, monkeypatch, forged):
    fresh = load(tmp_path, bpe(), "a")
    monkeypatch.setattr("tokmill.tokenizer.tokenizer._KEPT_FROM", 0)
    monkeypatch.setattr("tokmill.tokenizer.tokenizer.kept", lambda key: forged)
    assert load(tmp_path, bpe(), "b").identity == fresh.identity
