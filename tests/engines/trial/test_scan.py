from __future__ import annotations

import dataclasses
import json

import numpy as np
import pyarrow as pa
import pytest

from tokmill.engines.characters import CharacterSet
from tokmill.engines.choice import ScanResult
from tokmill.engines.engine import FAST_ENGINES, REFERENCE, is_installed, load_engine
from tokmill.engines.trial.contexts import Context, Group, derive_groups
from tokmill.engines.trial.engine_process import EngineProcess
from tokmill.engines.trial.scan import MOST_CHARACTERS, RememberedScan, Scan
from tokmill.engines.trial.tasks import EngineToLoad, fingerprints
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
"""Characters of many classes, and what a fake engine takes them for."""


def pattern_of(regex: str) -> dict:
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, {**BYTE_LEVEL, "use_regex": False}]}


@pytest.fixture
def engine_of(make_tokenizer, bytes_model):
    """Load the reference of a byte-level BPE with a pattern and a normalizer."""

    def make(regex: str, merges=MERGES, normalizer=None):
        parts = {"pre_tokenizer": pattern_of(regex), "normalizer": normalizer}
        tokenizer = make_tokenizer(bytes_model(*merges), **parts)
        return tokenizer, load_engine(REFERENCE, tokenizer, control_in_text="text", n_threads=1)

    return make


def some_of(tokenizer, more: str) -> list[Group]:
    """Give the groups of a tokenizer with 40 characters of each class at most, and some more."""
    return [
        dataclasses.replace(
            group,
            characters=group.characters[:40]
            + "".join(c for c in more if c in group.characters[40:]),
        )
        for group in derive_groups(tokenizer)
    ]


def scanned(tokenizer, reference, engine, more: str) -> ScanResult:
    scan = Scan(tokenizer, lambda: reference, some_of(tokenizer, more))
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
    """Give a class without the planted characters but those that are taken for it."""
    planted = "".join(TAKEN_FOR)
    own = "".join(one for one, taken_for in TAKEN_FOR.items() if taken_for == name)
    return rf"(?:[{TRUE[name]}&&[^{planted}]]|[{own}])"


@pytest.mark.parametrize(("write", "untold"), [(gpt2, "éʰǅ"), (llama3, "")])
def test_characters_that_an_engine_takes_for_another_class_are_found(engine_of, write, untold):
    # In GPT-2's pattern nothing shows a letter that is no part of a token from such a number.
    tokenizer, reference = engine_of(write(TRUE))
    _, engine = engine_of(write({name: fake(name) for name in TRUE}))
    result = scanned(tokenizer, reference, engine, "".join(TAKEN_FOR))
    assert result.refused == ""
    assert set(found_in(result)) == set(TAKEN_FOR).difference(untold)


class Reordering:
    """The reference, but for marks that it takes for marks of another combining class."""

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
    """Ids of a vocabulary of bytes alone."""

    @staticmethod
    def decode(ids: list[int]) -> bytes:
        return bytes(_OF_ID[id_] for id_ in ids)

    @staticmethod
    def encode(data: bytes) -> list[int]:
        return [_TO_ID[byte] for byte in data]


def _byte_ids() -> dict[int, int]:
    from tokenizers.pre_tokenizers import ByteLevel

    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    byte_of = {chr(b): b for b in printable}
    rest = [b for b in range(256) if b not in printable]
    byte_of |= {chr(0x100 + i): b for i, b in enumerate(rest)}
    return {byte_of[c]: i for i, c in enumerate(sorted(ByteLevel.alphabet()))}


_TO_ID = _byte_ids()
_OF_ID = {id_: byte for byte, id_ in _TO_ID.items()}


def test_marks_that_an_engine_sorts_by_another_combining_class_are_found(engine_of):
    tokenizer, reference = engine_of(GPT2, (), {"type": "NFC"})
    # 230 for 220, 220 for 230, 9 for 7, 202 for 230, and a letter for a mark and back.
    pairs = {"\u0310": "\u0329", "\u0347": "\u0352", "\u0acd": "\u09bc", "\u0328": "\u0363"}
    engine = Reordering(reference, pairs)
    result = scanned(tokenizer, reference, engine, "".join(pairs))
    assert result.refused == ""
    assert set(found_in(result)) == set(pairs)


def test_letters_that_an_engine_does_not_fold_are_found(engine_of):
    tokenizer, reference = engine_of(LLAMA3)
    _, engine = engine_of(LLAMA3.replace("(?i:'s|'ll)", "(?:'[sS]|'[lL][lL])"))
    result = scanned(tokenizer, reference, engine, "ſ")
    # `'ſa` is two words of the reference and one of the engine's; sequences with it are its own.
    assert (found_in(result), result.refused) == ("ſ", "")


def test_an_equal_engine_differs_nowhere(engine_of):
    tokenizer, reference = engine_of(LLAMA3)
    result = scanned(tokenizer, reference, reference, "")
    assert (result.differs, result.refused) == (CharacterSet(), "")
    assert result.n_characters > 1000
    assert result.n_sequences > 20_000


def test_a_difference_in_a_sequence_of_classes_refuses_an_engine(engine_of):
    tokenizer, reference = engine_of(GPT2)
    _, engine = engine_of(GPT2.replace(r"|\s+(?!\S)", ""))
    result = scanned(tokenizer, reference, engine, "")
    assert result.refused.startswith("its ids differ from the reference's on ")


def test_an_engine_that_differs_on_ascii_is_refused(engine_of):
    tokenizer, reference = engine_of(GPT2)
    _, engine = engine_of(GPT2.replace(r" ?\p{N}+", r" ?[\p{N}&&[^7]]+"), MERGES[1:])
    assert "its ids differ" in scanned(tokenizer, reference, engine, "").refused


def test_an_engine_that_differs_on_very_many_characters_is_refused(engine_of):
    tokenizer, reference = engine_of(GPT2)
    groups = [
        dataclasses.replace(group, characters=group.characters[: MOST_CHARACTERS + 1])
        for group in derive_groups(tokenizer)
        if "中" in group.characters
    ]
    _, engine = engine_of(GPT2.replace(r"\p{L}", r"[\p{L}&&[^\x{3400}-\x{9fff}]]"))
    scan = Scan(tokenizer, lambda: reference, groups)
    result = scan.compare(
        fingerprints(engine, scan.texts), lambda texts: fingerprints(engine, texts)
    )
    assert "characters, such as" in result.refused or "sequences" in result.refused


def test_a_result_survives_json():
    result = ScanResult(CharacterSet.of([0x88F, 0x890]), "", 5, 6)
    assert ScanResult.from_json(json.loads(json.dumps(result.as_json()))) == result


SOME = [Group("é中ſ\u0301😀\U000323b0", (Context("a", "'s"), Context(" ", "")))]

needs_fast_engines = pytest.mark.skipif(
    not all(is_installed(name) for name in FAST_ENGINES), reason="an engine has no wheel here"
)


@pytest.fixture(autouse=True)
def _directory(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKMILL_CACHE_DIR", str(tmp_path / "cache"))


def scanner_of(tokenizer, groups=None, loads=None) -> RememberedScan:
    def reference():
        if loads is not None:
            loads.append("reference")
        return load_engine(REFERENCE, tokenizer, control_in_text="text", n_threads=1)

    return RememberedScan(tokenizer, reference, "text", groups)


def result_of(scanner: RememberedScan, tokenizer, engine: str):
    with EngineProcess(EngineToLoad(engine, tokenizer, "text", 1)) as process:
        scanner.begin(process)
        return scanner.result(process), process.refused


@needs_fast_engines
def test_an_engine_is_compared_on_every_character_once_and_remembered(tokenizer):
    result, refused = result_of(scanner_of(tokenizer), tokenizer, "gigatoken")
    assert (result.refused, refused) == ("", "")
    assert result.n_characters == 1_112_064
    loads = []
    again = scanner_of(tokenizer, loads=loads)
    assert again.known("gigatoken") == result
    assert result_of(again, tokenizer, "gigatoken") == (result, "")
    assert loads == []


def test_a_scan_of_some_characters_is_not_remembered(tokenizer):
    scanner = scanner_of(tokenizer, SOME)
    result, _ = result_of(scanner, tokenizer, REFERENCE)
    assert (result.n_characters, len(result.differs)) == (6, 0)
    assert scanner_of(tokenizer, SOME).known(REFERENCE) is None
    assert scanner_of(tokenizer).known(REFERENCE) is None


def test_nothing_is_found_of_a_process_that_is_refused_before(tokenizer):
    scanner = scanner_of(tokenizer, SOME)
    with EngineProcess(EngineToLoad("gigatoken", tokenizer, "text", 1)) as process:
        process.refused = "of old"
        scanner.begin(process)
        assert scanner.result(process) is None
        assert process.refused == "of old"


def test_a_process_that_dies_in_the_middle_is_refused_and_not_remembered(tokenizer):
    scanner = scanner_of(tokenizer, SOME)
    with EngineProcess(EngineToLoad(REFERENCE, tokenizer, "text", 1)) as process:
        scanner.begin(process)
        process._child.kill()
        assert scanner.result(process) is None
        assert process.refused.startswith("died with status ")
