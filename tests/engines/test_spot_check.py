from __future__ import annotations

import unicodedata
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer as Library
from tokenizers import models, normalizers
from tokenizers import pre_tokenizers as pre

from tokmill.engines import spot_check
from tokmill.engines.reference import Reference, load_reference
from tokmill.engines.spot_check import (
    LONGEST_BYTES,
    TOO_LONG,
    SpotCheck,
    difference,
    spot_share,
)
from tokmill.offsets import offsets_of
from tokmill.values import TokenBatch

LONG = " ".join(f"word{i}" for i in range(40_000))


class Words:
    """An engine whose ids are hashes of words, but of the first and last letters of a text.

    What it gives depends on where a text begins and ends, as tokens at the edges of a window do.
    """

    name = "words"
    renewable = False
    concurrent = True

    def __init__(self) -> None:
        self.texts: list[str] = []

    def encode(self, text: pa.LargeStringArray) -> TokenBatch:
        self.texts += text.to_pylist()
        documents = list(map(self.ids, text))
        return TokenBatch(np.concatenate(documents), offsets_of(np.array([*map(len, documents)])))

    def ids(self, text: pa.LargeStringScalar) -> np.ndarray:
        words = text.as_py().split(" ")
        return np.array([hash(word) & 0x7FFFFFFF for word in words], np.uint32)


@pytest.fixture(scope="module")
def every_tokenizer() -> list[Reference]:
    """References of every kind: words, BPE of whole texts, WordPiece, Unigram, with normalizers."""
    letters = [*"▁worde0123456789aéüñ\u0301", *(chr(0x4E00 + i) for i in range(500))]
    bpe = {token: i for i, token in enumerate([*letters, "aa", "aaaa", "▁▁", "▁w", "or", "▁wor"])}
    merges = [("a", "a"), ("aa", "aa"), ("▁", "▁"), ("▁", "w"), ("o", "r"), ("▁w", "or")]
    parts = (
        (models.BPE(bpe, merges, unk_token="é"), None, pre.Metaspace(split=False)),
        (models.BPE(bpe, merges, unk_token="é"), normalizers.NFC(), pre.WhitespaceSplit()),
        (
            models.WordPiece(bpe, unk_token="é"),
            normalizers.BertNormalizer(),
            pre.BertPreTokenizer(),
        ),
        (
            models.Unigram([("<unk>", 0.0), *((t, -1.0 - len(t) / 9) for t in bpe)], 0, False),
            normalizers.NFKC(),
            pre.Metaspace(),
        ),
    )
    found = []
    for model, normalizer, splitter in parts:
        library = Library(model)
        library.normalizer, library.pre_tokenizer = normalizer, splitter
        found.append(_reference(library.to_str()))
    return found


def _reference(text: str) -> Reference:
    class Loaded:
        kind, name = "json", "tokenizer"

        def library(self) -> Library:
            return Library.from_str(text)

    return load_reference(Loaded(), parse=False)


def strings(*texts: str) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


def held(reference, text, batch, share=1.0, engine=None):
    """Return the counts of each document, and the rows and lines of differences."""
    numbers = np.arange(len(text))
    check = SpotCheck(lambda: reference, share)
    encode = (engine or reference).encode
    checks, differing = check.check(text, batch, lambda _, one: encode(one), numbers, numbers)
    return {name: counts.tolist() for name, counts in checks.items()}, differing


def changed(batch: TokenBatch, *positions: int) -> TokenBatch:
    ids = batch.ids.copy()
    ids[list(positions)] ^= 1
    return TokenBatch(ids, batch.offsets)


def test_equal_ids_pass_and_their_bytes_are_counted():
    text = strings("a b", "", "猫")
    expected = {"checked": [1, 0, 1], "checked_bytes": [3, 0, 3]}
    assert held(Words(), text, Words().encode(text)) == (expected, [])


def test_counts_are_of_documents_and_a_document_may_have_several_texts():
    text, check = strings("a b", "c", "猫", LONG), SpotCheck(Words, 1.0)
    batch = replace(Words().encode(text), routed=np.array([1, 2]))
    owner, rows = np.array([0, 0, 2, 1]), np.arange(4)
    checks, _ = check.check(text, batch, lambda *_: None, owner, rows)
    assert {name: n.tolist() for name, n in checks.items()} == {
        "checked": [1, 1, 1, 0],
        "checked_bytes": [4, len(LONG), 3, 0],
        "routed": [1, 0, 1, 0],
    }
    none = check.check(text.slice(0, 0), Words().encode(text), lambda *_: None, owner, rows)
    assert none == ({}, [])


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([97, 99], "at token 1 ([99] against [98])"),
        ([97], "at token 1 ([] against [98])"),
        ([97, 98, 99], "at token 2 ([99] against [])"),
        ([], "at token 0 ([] against [97, 98])"),
    ],
)
def test_a_difference_is_reported_with_its_row_and_text(ids, expected):
    class Two(Words):
        def ids(self, text):
            return np.array([97, 98], np.uint32)

    batch = TokenBatch(np.array(ids, np.uint32), np.array([0, len(ids)]))
    encode, owner, rows = lambda *_: None, np.array([1]), np.array([6, 7])
    assert SpotCheck(Two, 1.0).check(strings("ab"), batch, encode, owner, rows)[1] == [
        (
            7,
            f"the engine's ids differ from the reference's {expected} of the text that begins "
            "'ab': run again with --engine=reference --overwrite, and report it",
        )
    ]


def test_a_difference_is_one_line_of_bounded_length():
    ids = np.arange(1000, dtype=np.uint32)
    message = difference("line\n" * 1000, ids, ids[::-1])
    assert "\n" not in message
    assert len(message) < 300


def test_a_repeated_text_is_encoded_by_the_reference_once():
    reference, text = Words(), strings(*["You are a helpful assistant."] * 50)
    checks, _ = held(reference, text, Words().encode(text))
    assert (checks["checked"], len(reference.texts)) == ([1] * 50, 1)


def test_a_repeated_text_with_other_ids_is_found():
    text = strings("a b", "a b")
    _, differing = held(Words(), text, changed(Words().encode(text), 3))
    assert [row for row, _ in differing] == [1]


def test_windows_of_a_long_document_are_compared_without_encoding_all_of_it():
    text, reference = strings(LONG), Words()
    assert held(reference, text, Words().encode(text)) == (
        {"checked": [1], "checked_bytes": [len(LONG)]},
        [],
    )
    assert len(reference.texts) == -(-len(LONG) // LONGEST_BYTES)
    assert max(map(len, reference.texts)) < LONGEST_BYTES + 1000


@pytest.mark.parametrize("position", [0, 1, 20_000, 39_998, 39_999])
def test_one_wrong_id_inside_a_long_document_is_found(position):
    text = strings("short", LONG)
    _, ((row, line),) = held(Words(), text, changed(Words().encode(text), 1 + position))
    assert row == 1
    assert f"at token {position} " in line
    assert "of the text that begins 'word0 word1 " in line


def test_an_engine_that_is_wrong_about_a_word_is_found_in_a_document_of_any_length(monkeypatch):
    monkeypatch.setattr(spot_check, "WHOLE_BYTES", 0)

    class Wrong(Words):
        def ids(self, text):
            ids = super().ids(text)
            return np.where(ids == hash("word20000") & 0x7FFFFFFF, 7, ids).astype(np.uint32)

    text = strings(LONG)
    _, ((_, line),) = held(Words(), text, Wrong().encode(text), engine=Wrong())
    assert "([7, " in line


def test_an_undecided_window_of_a_very_long_document_is_skipped(monkeypatch):
    monkeypatch.setattr(spot_check, "WHOLE_BYTES", 0)
    text = strings(LONG)
    checks, differing = held(Words(), text, changed(Words().encode(text), 20_000))
    assert (checks[f"skipped: {TOO_LONG}"], differing) == ([1], [])
    assert 0 < checks["checked_bytes"][0] < len(LONG)


class Whole(Words):
    """An engine whose ids depend on all of the text."""

    def ids(self, text):
        return super().ids(text) ^ np.uint32(len(text.as_py()))


class One(Words):
    """An engine that makes one token of a text, however long."""

    def ids(self, text):
        return np.full(1, len(text.as_py()), np.uint32)


def test_a_document_whose_tokens_depend_on_distant_text_raises_no_alarm(monkeypatch):
    for reference in (Whole(), One()):
        checks, differing = held(reference, strings(LONG), reference.encode(strings(LONG)))
        assert (set(checks), differing) == ({"checked", "checked_bytes"}, [])
    monkeypatch.setattr(spot_check, "WHOLE_BYTES", 0)
    found = held(One(), strings(LONG), One().encode(strings(LONG)))
    assert found == ({f"skipped: {TOO_LONG}": [1]}, [])


TEXTS = {
    "words": LONG,
    "no white space": LONG.replace(" ", ""),
    "one letter": "a" * 100_001,
    "spaces": ("x" + " " * 40_001) * 3,
    "lines": "\n" * 100_001,
    "marks": "a" + "\u0301" * 50_000,
    "decomposed": unicodedata.normalize("NFD", "éàü ñ " * 10_000),
    "Chinese": "".join(chr(0x4E00 + i * 7919 % 20_000) for i in range(40_000)),
    "emoji": "👨‍👩‍👧‍👦🇨🇳❤️" * 3000,
}


@pytest.mark.parametrize("name", TEXTS)
def test_an_exact_engine_raises_no_alarm_in_any_long_document(every_tokenizer, tokenizer, name):
    text = strings(TEXTS[name])
    for reference in (*every_tokenizer, load_reference(tokenizer, parse=False)):
        checks, differing = held(reference, text, reference.encode(text))
        assert (checks["checked"], differing) == ([1], [])


def test_continuations_are_compared_with_their_own_reference():
    text, first, rest = strings("a", "b"), Words(), Words()
    check = SpotCheck(lambda: first, 1.0, lambda: rest)
    batch = Words().encode(text)
    asked, numbers = [], np.arange(2)
    encode = lambda *window: asked.append(window)  # noqa: E731
    check.check(text, batch, encode, numbers, numbers, np.array([False, True]))
    assert (first.texts, rest.texts, asked) == (["a"], ["b"], [])


def test_a_slower_engine_has_more_of_its_text_compared():
    assert spot_share("gigatoken") == spot_share("fastokens") < spot_share("of another package")
    assert spot_share("reference") == 0
