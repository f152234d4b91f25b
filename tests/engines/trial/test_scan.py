from __future__ import annotations

import dataclasses
import json

import numpy as np
import pyarrow as pa
import pytest

from tokmill.engines.characters import COMMON, RARE, CharacterSet
from tokmill.engines.choice import ScanResult
from tokmill.engines.engine import FAST_ENGINES, REFERENCE, is_installed, load_engine
from tokmill.engines.trial import scan as scan_module
from tokmill.engines.trial.contexts import Context, Group, derive_groups
from tokmill.engines.trial.engine_process import EngineProcess
from tokmill.engines.trial.scan import Scan
from tokmill.engines.trial.tasks import EngineToLoad, fingerprints
from tokmill.tokenizer.tokenizer_json import byte_characters
from tokmill.values import TokenBatch

GPT2 = r"'s|'ll| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'ll)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
MERGES = [("'", "s"), ("Ġ", "'"), ("l", "l"), ("'", "ll"), ("1", "2"), ("12", "3"), ("Ġ", "Ġ")]
MERGES += [("¿", "a"), ("Ċ", "Ċ"), ("Ġ", "a"), ("a", "a"), ("Ġ", "!")]
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
TAKEN_FOR = {
    **dict.fromkeys("\U000323b0\u0378😀\u0300\ue000", "L"),
    **dict.fromkeys("éʰǅ", "N"),
    **dict.fromkeys("中가\u0e01²", "other"),
    **dict.fromkeys("Ⅷ٣\u200b", "S"),
    **dict.fromkeys("\u2028\u3000", "other"),
    **dict.fromkeys("\U00033400\u20ac", "N"),
}
"""Characters of many classes, and the class that a fake engine puts them in."""


def pattern_of(regex: str) -> dict:
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, {**BYTE_LEVEL, "use_regex": False}]}


@pytest.fixture
def engine_of(make_tokenizer, bytes_model):
    """Load the reference of a byte-level BPE with a pattern and a normalizer."""

    def make(regex: str, merges=MERGES, normalizer=None):
        parts = {
            "pre_tokenizer": pattern_of(regex),
            "normalizer": normalizer,
            "decoder": BYTE_LEVEL,
        }
        tokenizer = make_tokenizer(bytes_model(*merges), **parts)
        return tokenizer, load_engine(REFERENCE, tokenizer, control_in_text="text", n_threads=1)

    return make


def some_of(tokenizer, more: str) -> list[Group]:
    """Return the groups of a tokenizer with up to 40 characters of each class, and some more."""
    return [
        dataclasses.replace(
            group,
            characters=group.characters[:40]
            + "".join(c for c in more if c in group.characters[40:]),
        )
        for group in derive_groups(tokenizer.library())
    ]


@pytest.fixture(scope="module")
def scans() -> dict[tuple[str, str], Scan]:
    """Scans by tokenizer and characters: several engines are compared with one reference."""
    return {}


@pytest.fixture
def scanned(scans):
    """Compare an engine with the reference on characters of every class, and some more."""

    def make(tokenizer, reference, engine, more: str) -> ScanResult:
        key = tokenizer.sha256, more
        if key not in scans:
            scans[key] = Scan(tokenizer, lambda: reference, groups=some_of(tokenizer, more))
        return compared(scans[key], engine)

    return make


def compared(scan: Scan, engine) -> ScanResult:
    return scan.compare(fingerprints(engine, scan.texts), lambda texts: fingerprints(engine, texts))


def found_in(result: ScanResult) -> str:
    return "".join(map(chr, result.differs.codes()))


def gpt2(classes: dict[str, str]) -> str:
    letter, number, space = classes["L"], classes["N"], classes["S"]
    other = rf"(?:(?!{letter}|{number}|{space})[\s\S])"
    return (
        rf"'s|'ll| ?{letter}+| ?{number}+| ?{other}+"
        rf"|{space}+(?!(?!{space})[\s\S])|{space}+"
    )


def llama3(classes: dict[str, str]) -> str:
    letter, number, space = classes["L"], classes["N"], classes["S"]
    other = rf"(?:(?!{letter}|{number}|{space})[\s\S])"
    return (
        rf"(?i:'s|'ll)|(?:(?![\r\n]|{letter}|{number})[\s\S])?{letter}+|{number}{{1,3}}"
        rf"| ?{other}+[\r\n]*|{space}*[\r\n]+|{space}+(?!(?!{space})[\s\S])|{space}+"
    )


TRUE = {"L": r"\p{L}", "N": r"\p{N}", "S": r"\s"}


def fake(name: str) -> str:
    """Return a class without the planted characters, but with those put in it by mistake."""
    planted = "".join(TAKEN_FOR)
    own = "".join(one for one, taken_for in TAKEN_FOR.items() if taken_for == name)
    return rf"(?:[{TRUE[name]}&&[^{planted}]]|[{own}])"


@pytest.mark.parametrize(("write", "untold"), [(gpt2, "éʰǅ"), (llama3, "")])
def test_characters_that_an_engine_puts_in_another_class_are_found(
    engine_of, scanned, write, untold
):
    # GPT-2's pattern cannot distinguish a letter outside all tokens from such a number.
    tokenizer, reference = engine_of(write(TRUE))
    _, engine = engine_of(write({name: fake(name) for name in TRUE}))
    result = scanned(tokenizer, reference, engine, "".join(TAKEN_FOR))
    assert result.refused == ""
    assert set(found_in(result)) == set(TAKEN_FOR).difference(untold)


def test_characters_that_were_not_compared_are_routed_like_those_that_differ(engine_of):
    tokenizer, reference = engine_of(GPT2)
    _, engine = engine_of(gpt2({name: fake(name) for name in TRUE}))
    scan = Scan(tokenizer, lambda: reference, all_characters=False)
    texts = scan.texts
    result = scan.compare(fingerprints(engine, texts), lambda some: fingerprints(engine, some))
    assert (result.refused, result.uncompared, result.n_characters) == ("", RARE, len(COMMON))
    assert set(found_in(result)) == {c for c in TAKEN_FOR if ord(c) in COMMON}.difference("éʰǅ")
    assert all(ord(character) in result.routed for character in set(TAKEN_FOR).difference("éʰǅ"))


@pytest.mark.parametrize("all_characters", [False, True])
def test_a_token_that_differs_refuses_unless_its_documents_go_to_the_reference(
    engine_of, all_characters
):
    parts = [byte_characters()[byte] for byte in "𠜎".encode()]
    whole = [("".join(parts[:n]), parts[n]) for n in (1, 2, 3)]
    tokenizer, reference = engine_of(GPT2, [*whole, ("".join(parts), "a")])
    _, engine = engine_of(GPT2, whole)
    groups = [Group("é", (Context("", ""),))]
    scan = Scan(tokenizer, lambda: reference, groups=groups, all_characters=all_characters)
    texts = scan.texts
    result = scan.compare(fingerprints(engine, texts), lambda some: fingerprints(engine, some))
    assert bool(result.refused) == all_characters
    assert len(result.differs) == 0


class Reordering:
    """The reference, except that some marks get another combining class."""

    name, renewable, concurrent = "reordering", False, False

    def __init__(self, engine, instead: dict[str, str]):
        self._engine, self._instead = engine, instead

    def encode(self, text):
        return _joined(map(self._one, text.to_pylist()))

    def _one(self, text: str) -> list[int]:
        swapped = text
        for mark, other in self._instead.items():
            if other not in text:
                swapped = swapped.replace(mark, other)
        ids = self._engine.encode(pa.array([swapped], pa.large_string())).ids.tolist()
        return ids if swapped == text else self._back(ids, text)

    def _back(self, ids: list[int], text: str) -> list[int]:
        data = BYTES.decode(ids)
        for mark, other in self._instead.items():
            if mark in text and other not in text:
                data = data.replace(other.encode(), mark.encode())
        return BYTES.encode(data)


def _joined(documents) -> TokenBatch:
    lists = list(documents)
    offsets = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    return TokenBatch(np.array([i for ids in lists for i in ids], np.uint32), offsets)


class BYTES:
    """Ids of a vocabulary of bytes only."""

    @staticmethod
    def decode(ids: list[int]) -> bytes:
        return bytes(_OF_ID[id_] for id_ in ids)

    @staticmethod
    def encode(data: bytes) -> list[int]:
        return [_TO_ID[byte] for byte in data]


def _byte_ids() -> dict[int, int]:
    byte_of = {character: byte for byte, character in byte_characters().items()}
    return {byte_of[character]: i for i, character in enumerate(sorted(byte_of))}


_TO_ID = _byte_ids()
_OF_ID = {id_: byte for byte, id_ in _TO_ID.items()}


def test_marks_that_an_engine_sorts_by_another_combining_class_are_found(engine_of, scanned):
    tokenizer, reference = engine_of(GPT2, (), {"type": "NFC"})
    # 230 for 220, 220 for 230, 9 for 7, 202 for 230, and a letter for a mark and back.
    pairs = {"\u0310": "\u0329", "\u0347": "\u0352", "\u0acd": "\u09bc", "\u0328": "\u0363"}
    engine = Reordering(reference, pairs)
    result = scanned(tokenizer, reference, engine, "".join(pairs))
    assert result.refused == ""
    assert set(found_in(result)) == set(pairs)


def test_letters_that_an_engine_does_not_fold_are_found(engine_of, scanned):
    tokenizer, reference = engine_of(LLAMA3)
    _, engine = engine_of(LLAMA3.replace("(?i:'s|'ll)", "(?:'[sS]|'[lL][lL])"))
    result = scanned(tokenizer, reference, engine, "ſ")
    # `'ſa` is two words of the reference and one of the engine's; sequences with it are its own.
    assert (found_in(result), result.refused) == ("ſ", "")


def test_an_equal_engine_never_differs(engine_of, scanned):
    tokenizer, reference = engine_of(LLAMA3)
    result = scanned(tokenizer, reference, reference, "ſ")
    assert (result.differs, result.refused) == (CharacterSet(), "")
    assert result.n_characters > 1000
    assert result.n_sequences > 20_000


def test_a_difference_in_a_sequence_of_classes_refuses_an_engine(engine_of, scanned):
    tokenizer, reference = engine_of(GPT2)
    _, engine = engine_of(GPT2.replace(r"|\s+(?!\S)", ""))
    result = scanned(tokenizer, reference, engine, "")
    assert result.refused.startswith("its ids differ from the reference's on ")


def test_an_engine_that_differs_on_ascii_is_refused(engine_of, scanned):
    tokenizer, reference = engine_of(GPT2)
    _, engine = engine_of(GPT2.replace(r" ?\p{N}+", r" ?[\p{N}&&[^7]]+"), MERGES[1:])
    assert "its ids differ" in scanned(tokenizer, reference, engine, "").refused


def test_an_engine_that_differs_on_very_many_characters_is_refused(engine_of, monkeypatch):
    characters = "".join(map(chr, range(0x3400, 0x3600)))
    monkeypatch.setattr(scan_module, "MOST_CHARACTERS", len(characters) - 1)
    tokenizer, reference = engine_of(GPT2)
    groups = [
        dataclasses.replace(group, characters=characters)
        for group in derive_groups(tokenizer.library())
        if "中" in group.characters
    ]
    _, engine = engine_of(GPT2.replace(r"\p{L}", r"[\p{L}&&[^\x{3400}-\x{35ff}]]"))
    result = compared(Scan(tokenizer, lambda: reference, groups=groups), engine)
    assert "differ from the reference's on 512 characters, such as" in result.refused
    monkeypatch.setattr(scan_module, "MOST_CHARACTERS", len(characters))
    result = compared(Scan(tokenizer, lambda: reference, groups=groups), engine)
    assert (found_in(result), result.refused) == (characters, "")


def test_a_result_can_be_written_as_json_and_read_back():
    result = ScanResult(CharacterSet.of([0x88F, 0x890]), "", 5, 6)
    assert ScanResult.from_json(json.loads(json.dumps(result.as_json()))) == result


SOME = [Group("é中ſ\u0301😀\U000323b0", (Context("a", "'s"), Context(" ", "")))]

needs_fast_engines = pytest.mark.skipif(
    not all(is_installed(name) for name in FAST_ENGINES), reason="an engine has no wheel here"
)


@pytest.fixture(autouse=True)
def _directory(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKMILL_CACHE_DIR", str(tmp_path / "cache"))


def scan_of(tokenizer, groups=None, loads=None) -> Scan:
    def reference():
        if loads is not None:
            loads.append("reference")
        return load_engine(REFERENCE, tokenizer, control_in_text="text", n_threads=1)

    return Scan(tokenizer, reference, "text", groups)


def result_of(scan: Scan, tokenizer, name: str):
    with EngineProcess(EngineToLoad(name, tokenizer, "text", 1)) as engine:
        scan.begin(engine)
        return scan.result(engine), engine.refused


@needs_fast_engines
def test_an_engine_is_compared_on_every_character_once_and_remembered(tokenizer):
    result, refused = result_of(scan_of(tokenizer), tokenizer, "gigatoken")
    assert (result.refused, refused) == ("", "")
    assert result.n_characters == 1_112_064
    loads = []
    again = scan_of(tokenizer, loads=loads)
    assert again.known("gigatoken") == result
    assert result_of(again, tokenizer, "gigatoken") == (result, "")
    assert loads == []


def test_a_scan_of_some_characters_is_not_remembered(tokenizer):
    scan = scan_of(tokenizer, SOME)
    result, _ = result_of(scan, tokenizer, REFERENCE)
    assert (result.n_characters, len(result.differs)) == (6, 0)
    assert scan_of(tokenizer, SOME).known(REFERENCE) is None
    assert scan_of(tokenizer).known(REFERENCE) is None


def test_an_engine_refused_before_has_no_result(tokenizer):
    scan = scan_of(tokenizer, SOME)
    with EngineProcess(EngineToLoad("gigatoken", tokenizer, "text", 1)) as engine:
        engine.refused = "of old"
        scan.begin(engine)
        assert scan.result(engine) is None
        assert engine.refused == "of old"


def test_an_engine_that_dies_during_the_scan_is_refused_and_not_remembered(tokenizer):
    scan = scan_of(tokenizer, SOME)
    with EngineProcess(EngineToLoad(REFERENCE, tokenizer, "text", 1)) as engine:
        scan.begin(engine)
        engine._child.stop()
        assert scan.result(engine) is None
        assert engine.refused.startswith("died with status ")
