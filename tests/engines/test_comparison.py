"""Characters that an engine treats otherwise are found, whatever the vocabulary."""

from __future__ import annotations

import dataclasses
import json

import pytest
import tokenizers

import tokmill.engines.comparison as module
from tokmill.engines import engine_child
from tokmill.engines.choice import CharacterComparison
from tokmill.engines.comparison import (
    compare_engines,
    keep,
    known_comparison,
    model_type,
    showing,
    structure,
)
from tokmill.engines.engine import FAST_ENGINES, REFERENCE, _version, is_installed, load_engine
from tokmill.engines.engine_child import compare, compared_texts, fingerprints
from tokmill.engines.routing import COMMON, RARE, CharacterSet
from tokmill.engines.texts import CONTEXTS

GPT2 = r"'s|'ll| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'ll)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
TAKEN_FOR = {
    **dict.fromkeys("\U000323b0\u0378😀\u0302\ue000", "L"),
    **dict.fromkeys("èʰǅ", "N"),
    **dict.fromkeys("文각\u0e01²", "other"),
    **dict.fromkeys("Ⅷ٣\u200b", "S"),
    **dict.fromkeys("\u2028\u3000", "other"),
    **dict.fromkeys("\U00033400\u20ac", "N"),
}
"""Characters of many classes, none in a context, and the class that a fake engine puts them in."""

TRUE = {"L": r"\p{L}", "N": r"\p{N}", "S": r"\s"}
NONE = CharacterSet()

needs_fast_engines = pytest.mark.skipif(
    not all(is_installed(name) for name in FAST_ENGINES), reason="an engine has no wheel here"
)


@pytest.fixture(autouse=True)
def _directory(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKMILL_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def split_by(make_tokenizer, bytes_model):
    """Make a byte-level BPE with a pattern and a normalizer, without any merges."""

    def make(regex: str, normalizer=None):
        split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated"}
        parts = [{**split, "invert": False}, {**BYTE_LEVEL, "use_regex": False}]
        return make_tokenizer(
            bytes_model(),
            pre_tokenizer={"type": "Sequence", "pretokenizers": parts},
            normalizer=normalizer,
            decoder=BYTE_LEVEL,
        )

    return make


def shown(tokenizer):
    """Return the reference of a tokenizer with a vocabulary that shows its splits."""
    return load_engine(REFERENCE, showing(tokenizer), control_in_text="text", n_threads=1)


def compared(reference, engine, characters: str, uncompared=NONE) -> CharacterComparison:
    in_contexts = [(context, characters) for context in CONTEXTS]
    expected = fingerprints(reference, compared_texts(in_contexts))
    return CharacterComparison(*compare(reference, engine, in_contexts, uncompared, expected))


def pattern(classes: dict[str, str], form: str) -> str:
    letter, number, space = classes["L"], classes["N"], classes["S"]
    other = rf"(?:(?!{letter}|{number}|{space})[\s\S])"
    runs = rf"{space}+(?!(?!{space})[\s\S])|{space}+"
    if form == "gpt2":
        return rf"'s|'ll| ?{letter}+| ?{number}+| ?{other}+|{runs}"
    return (
        rf"(?i:'s|'ll)|(?:(?![\r\n]|{letter}|{number})[\s\S])?{letter}+|{number}{{1,3}}"
        rf"| ?{other}+[\r\n]*|{space}*[\r\n]+|{runs}"
    )


def fake(name: str) -> str:
    """Return a class without the planted characters, but with those put in it by mistake."""
    own = "".join(one for one, taken_for in TAKEN_FOR.items() if taken_for == name)
    return rf"(?:[{TRUE[name]}&&[^{''.join(TAKEN_FOR)}]]|[{own}])"


@pytest.mark.parametrize("form", ["gpt2", "llama3"])
def test_characters_that_an_engine_puts_in_another_class_are_found(split_by, form):
    reference = shown(split_by(pattern(TRUE, form)))
    engine = shown(split_by(pattern({name: fake(name) for name in TRUE}, form)))
    characters = "".join(TAKEN_FOR) + "aéж中ا☃𝔘½\u0301"
    result = compared(reference, engine, characters)
    assert result.refused == ""
    assert "".join(map(chr, result.differs.codes())) == "".join(sorted(TAKEN_FOR))


def test_letters_that_an_engine_does_not_fold_are_found(split_by):
    reference = shown(split_by(LLAMA3))
    engine = shown(split_by(LLAMA3.replace("(?i:'s|'ll)", "(?:'[sS]|'[lL][lL])")))
    result = compared(reference, engine, "ſaé")
    assert (list(result.differs.codes()), result.refused) == ([ord("ſ")], "")


def test_marks_that_an_engine_composes_or_sorts_otherwise_are_found(split_by):
    reference = shown(split_by(GPT2, {"type": "NFC"}))
    engine = shown(split_by(GPT2))
    result = compared(reference, engine, "\u0310\u0345é", CharacterSet(((0x80, 0x10FFFF),)))
    assert {0x310, 0x345} <= set(result.differs.codes())


def test_an_equal_engine_never_differs(split_by):
    reference = shown(split_by(LLAMA3))
    result = compared(reference, reference, "ſé")
    assert (result.differs, result.refused) == (NONE, "")


@pytest.mark.parametrize(
    ("old", "new"), [(r"|\s+(?!\S)", ""), (r" ?\p{N}+", r" ?[\p{N}&&[^7]]+"), ("'ll|", "")]
)
def test_an_engine_that_differs_on_ascii_or_on_sequences_is_refused(split_by, old, new):
    reference, engine = (shown(split_by(regex)) for regex in (GPT2, GPT2.replace(old, new)))
    result = compared(reference, engine, "".join(map(chr, range(0x80))))
    assert result.refused.startswith("its ids differ from the reference's on ")


def test_a_sequence_with_a_character_that_is_routed_does_not_refuse(split_by):
    reference = shown(split_by(GPT2))
    engine = shown(split_by(GPT2.replace(r"\p{L}+", r"[\p{L}&&[^中]]+")))
    assert compared(reference, engine, "é").refused
    assert not compared(reference, engine, "é", CharacterSet.of([ord("中")])).refused
    assert not compared(reference, engine, "é中").refused


def test_an_engine_that_differs_on_very_many_characters_is_refused(split_by, monkeypatch):
    characters = "".join(map(chr, range(0x3400, 0x3440)))
    reference = shown(split_by(GPT2))
    engine = shown(split_by(GPT2.replace(r"\p{L}", r"[\p{L}&&[^\x{3400}-\x{343f}]]")))
    assert len(compared(reference, engine, characters).differs) == 64
    monkeypatch.setattr(engine_child, "MOST_CHARACTERS", 63)
    assert "on 64 characters, such as" in compared(reference, engine, characters).refused
    monkeypatch.setattr(engine_child, "MOST_CHARACTERS", 3)
    assert "on most characters" in compared(reference, engine, characters).refused


def test_the_vocabulary_and_added_tokens_do_not_change_the_structure(split_by, tokenizer):
    first = split_by(GPT2)
    content = json.loads(first.json)
    content["model"]["vocab"]["ab"] = 300
    content["pre_tokenizer"]["pretokenizers"][1]["trim_offsets"] = False
    same = dataclasses.replace(first, json=json.dumps(content))
    assert structure(first) == structure(same)
    assert structure(split_by(LLAMA3)) != structure(first) != structure(tokenizer)
    assert structure(split_by(GPT2, {"type": "NFC"})) != structure(first)


def test_a_result_is_kept_for_its_steps_engine_and_versions(split_by, monkeypatch, tmp_path):
    tokenizer, other = split_by(GPT2), split_by(LLAMA3)
    result = CharacterComparison(CharacterSet(((0x88F, 0x88F),)), "", 100, 10, RARE)
    assert known_comparison(tokenizer, "gigatoken") is None
    keep(module._cache_key(tokenizer, module._versions(tokenizer, "gigatoken")), result.as_json())
    assert known_comparison(tokenizer, "gigatoken") == result
    assert known_comparison(tokenizer, "fastokens") is None
    assert known_comparison(other, "gigatoken") is None
    with monkeypatch.context() as newer:
        newer.setattr(tokenizers, "__version__", "99.0")
        assert known_comparison(tokenizer, "gigatoken") is None
    assert known_comparison(tokenizer, "gigatoken") == result
    (tmp_path / "gigatoken-99.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    _version.cache_clear()
    assert known_comparison(tokenizer, "gigatoken") is None
    _version.cache_clear()


@needs_fast_engines
def test_what_is_compared_is_said_and_the_result_is_kept(split_by):
    tokenizer, notes = split_by(LLAMA3), []
    results = compare_engines(tokenizer, FAST_ENGINES, 2, notes.append)
    assert notes[0].startswith("comparing gigatoken and fastokens with the reference on 67,584 ")
    for name in FAST_ENGINES:
        assert (results[name].n_characters, results[name].uncompared) == (len(COMMON), RARE)
        assert known_comparison(tokenizer, name) == results[name]


def is_shipped(tokenizer) -> bool:
    versions = [module._versions(tokenizer, name) for name in FAST_ENGINES]
    rows = module._table().get(versions[0][0], {})
    return any(version in row["engines"] for row in rows.values() for _, version in versions)


@needs_fast_engines
def test_common_steps_need_no_comparison(tokenizer):
    if not is_shipped(tokenizer):
        pytest.skip("other versions of the engines than those of the shipped table")
    for name in FAST_ENGINES:
        known = known_comparison(tokenizer, name)
        assert (known.n_characters, known.refused, len(known.uncompared)) == (1_112_064, "", 0)


@needs_fast_engines
def test_the_shipped_table_is_what_a_comparison_finds(tokenizer):
    if not is_shipped(tokenizer):
        pytest.skip("other versions of the engines than those of the shipped table")
    results = compare_engines(tokenizer, FAST_ENGINES, 2)
    for name in FAST_ENGINES:
        shipped = {c for c in known_comparison(tokenizer, name).differs.codes() if c in COMMON}
        assert set(results[name].differs.codes()) == shipped


def test_the_type_of_a_model_is_found_without_its_name(tokenizer):
    merged = json.dumps({"model": {"vocab": {}, "merges": []}})
    unigram = json.dumps({"model": {"vocab": [["a", 0.0]]}})
    texts = [tokenizer.json, merged, unigram, ""]
    found = [model_type(dataclasses.replace(tokenizer, json=text)) for text in texts]
    assert found == ["BPE", "BPE", "", ""]
