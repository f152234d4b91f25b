from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.batch import TokenBatch
from tokmill.encode.spot import (
    LONGEST_BYTES,
    Candidate,
    SpotCheck,
    candidates,
    describe_difference,
    pick,
)
from tokmill.errors import ParityError

MANY = [f"document {i} 猫{i * 7919 % 1000}" for i in range(6000)]


class Bytes:
    """An engine whose ids are the bytes of the text."""

    name = "bytes"
    renewable = False

    def encode(self, text: pa.LargeStringArray) -> TokenBatch:
        data = [document.encode() for document in text.to_pylist()]
        offsets = np.cumsum([0] + [len(document) for document in data])
        return TokenBatch(np.frombuffer(b"".join(data), np.uint8).astype(np.uint32), offsets)


def strings(texts: list[str]) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


def candidate(text: str, ids: list[int] | None = None) -> Candidate:
    given = Bytes().encode(strings([text])).ids if ids is None else np.array(ids, np.uint32)
    return Candidate(0, strings([text]), given)


def test_about_one_document_in_512_is_picked():
    assert 4 <= len(pick(strings(MANY))) <= 30


@given(st.lists(st.integers(0, len(MANY)), max_size=6))
def test_the_same_documents_are_picked_however_the_batch_is_cut(cuts):
    whole = strings(MANY)
    bounds = [0, *sorted(cuts), len(MANY)]
    picked: list[int] = []
    for start, stop in itertools.pairwise(bounds):
        view, copied = whole.slice(start, stop - start), strings(MANY[start:stop])
        assert pick(view).tolist() == pick(copied).tolist()
        picked += (pick(view) + start).tolist()
    assert picked == pick(whole).tolist()


def test_a_picked_document_is_picked_alone_too():
    whole = strings(MANY)
    picked = pick(whole)
    assert len(picked) > 0
    for i in picked:
        assert pick(whole.slice(int(i), 1)).tolist() == [0]
        assert pick(strings([MANY[i]])).tolist() == [0]
    others = np.setdiff1d(np.arange(200), picked)
    assert all(len(pick(whole.slice(int(i), 1))) == 0 for i in others)


@pytest.mark.parametrize("texts", [[], [""], ["", "", ""]])
def test_texts_without_bytes_are_never_picked(texts):
    assert pick(strings(texts)).tolist() == []


def test_empty_documents_among_others_are_not_picked_and_change_no_choice():
    # Every pair of neighbours differs: hashing their bytes for an empty document would pick some.
    pairs = [divmod(i * 7919 % 9025, 95) for i in range(9025)]
    texts = [chr(32 + high) + chr(32 + low) for high, low in pairs]
    picked = pick(strings(texts))
    assert len(picked) > 0
    mixed = [text for document in texts for text in ("", document)]
    assert pick(strings(mixed)).tolist() == (picked * 2 + 1).tolist()


def test_short_documents_can_be_picked_without_reading_their_neighbours():
    short = [chr(0x4E00 + i) for i in range(4000)]
    picked = pick(strings(short))
    assert len(picked) > 0
    assert pick(strings([short[i] for i in picked])).tolist() == list(range(len(picked)))


def test_candidates_hold_their_own_text_and_ids():
    text = strings(MANY)
    tokens = Bytes().encode(text)
    found = candidates(text, tokens)
    assert [item.index for item in found] == pick(text).tolist()
    for item in found:
        assert item.text.to_pylist() == [MANY[item.index]]
        assert bytes(item.ids.tolist()).decode() == MANY[item.index]
        assert item.ids.base is None


def test_equal_ids_pass_and_are_counted():
    spot = SpotCheck(Bytes)
    spot.check(candidate("ab"), "a.jsonl:1")
    spot.check(candidate("猫"), "a.jsonl:2")
    assert (spot.n_checked, spot.n_too_long) == (2, 0)


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([97, 99], "at token 1 ([99] against [98])"),
        ([97], "at token 1 ([] against [98])"),
        ([97, 98, 99], "at token 2 ([99] against [])"),
        ([], "at token 0 ([] against [97, 98])"),
    ],
)
def test_one_difference_stops_the_run_naming_the_document(ids, expected):
    with pytest.raises(ParityError) as caught:
        SpotCheck(Bytes).check(candidate("ab", ids), "a.jsonl:7")
    assert str(caught.value) == (
        f"a.jsonl:7: the engine's ids differ from the reference's {expected} "
        "of the document that begins 'ab': "
        "run again with --engine tokenizers --overwrite, and report it"
    )


def test_a_difference_is_one_line_of_bounded_length():
    ids = np.arange(1000, dtype=np.uint32)
    message = describe_difference("line\n" * 1000, ids, ids[::-1], "a.jsonl:1")
    assert "\n" not in message
    assert len(message) < 300


def test_a_document_longer_than_the_limit_is_counted_and_not_checked():
    spot = SpotCheck(Bytes)
    spot.check(candidate("a" * (LONGEST_BYTES + 1), [1]), "x")
    assert (spot.n_checked, spot.n_too_long) == (0, 1)


def test_the_budget_is_spent_and_earned_again():
    spot = SpotCheck(Bytes)
    third = candidate("a" * (LONGEST_BYTES // 3))
    for _ in range(5):
        spot.check(third, "x")
    assert spot.n_checked == 2  # the first budget is 64 KiB, offsets included
    spot.earn(2000 * third.text.nbytes)  # 0.05 % of it is one such document
    for _ in range(5):
        spot.check(third, "x")
    assert (spot.n_checked, spot.n_too_long) == (3, 0)
