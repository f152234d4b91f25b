"""The search for runs of n ids finds what a search over all runs finds."""

from __future__ import annotations

import random
from itertools import chain
from typing import Any

import numpy as np
import pytest

from tokmill.errors import UsageError
from tokmill.mixing import ngrams
from tokmill.mixing.ngrams import Found, NgramIndex, make_index

Ids = list[int]


def runs_of(ids: Ids, n: int) -> list[tuple[int, ...]]:
    return [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]


def expected_runs(documents: list[Ids], texts: list[Ids], n: int) -> list[tuple[int, set[int]]]:
    """Return where a shared run begins, and the texts that hold it."""
    found, first = [], 0
    of_texts = [set(runs_of(text, n)) for text in texts]
    for ids in documents:
        for i, run in enumerate(runs_of(ids, n)):
            owners = {number for number, of_text in enumerate(of_texts) if run in of_text}
            found += [(first + i, owners)] if owners else []
        first += len(ids)
    return found


def indexed(texts: list[Ids], n: int) -> NgramIndex:
    return make_index([np.array(ids, np.uint32) for ids in texts], range(len(texts)), n)


def searched(index: NgramIndex, documents: list[Ids], dtype: Any = np.uint16) -> Found:
    offsets = np.cumsum([0, *map(len, documents)])
    return index.find(np.array(list(chain.from_iterable(documents)), dtype), offsets)


def owners_of(index: NgramIndex, gram: int) -> set[int]:
    return set(index.texts[index.firsts[gram] : index.firsts[gram + 1]].tolist())


def random_case(rng: random.Random) -> tuple[list[Ids], list[Ids]]:
    """Return documents and texts of few different ids, or of many, with parts of texts in them."""
    n_ids = rng.choice([2, 3, 50, 65_536])
    texts = [[rng.randrange(n_ids) for _ in range(rng.randrange(40))] for _ in range(4)]
    documents = [[rng.randrange(n_ids) for _ in range(rng.randrange(1, 50))] for _ in range(6)]
    for text in texts:
        ids, at = rng.choice(documents), rng.randrange(len(text) + 1)
        place = rng.choice([0, len(ids), rng.randrange(len(ids) + 1)])
        ids[place:place] = text[at : at + rng.randrange(40)]
    return documents, texts


@pytest.mark.parametrize("n", [1, 2, 3, 8, 13, 20])
@pytest.mark.parametrize("block", [1, 7, 1 << 15])
def test_all_runs_are_found_and_no_others(monkeypatch, n, block) -> None:
    monkeypatch.setattr(ngrams, "BLOCK_TOKENS", block)
    for seed in range(40):
        rng = random.Random(seed)
        documents, texts = random_case(rng)
        index = indexed(texts, n)
        found = searched(index, documents, rng.choice([np.uint16, np.uint32]))
        pairs = zip(found.starts.tolist(), found.grams.tolist(), strict=True)
        got = [(start, owners_of(index, gram)) for start, gram in pairs]
        assert got == expected_runs(documents, texts, n)


@pytest.mark.parametrize("n", [1, 2, 13])
def test_a_run_is_found_at_every_offset(n) -> None:
    text = list(range(100, 100 + n))
    index = indexed([text], n)
    for length in (n, n + 1, 40):
        for place in range(length - n + 1):
            ids = [7] * place + text + [7] * (length - n - place)
            assert searched(index, [[7] * 5, ids, [7]]).starts.tolist() == [5 + place]


def test_no_run_goes_over_the_border_of_documents() -> None:
    index = indexed([[1, 2, 3, 4]], 3)
    assert searched(index, [[9, 1, 2], [3, 4, 9], [2, 3, 4]]).starts.tolist() == [6]


def test_runs_with_one_hash_are_told_apart_by_their_ids(monkeypatch) -> None:
    """With hashes of 12 bits, many runs of the documents have that of a text."""
    monkeypatch.setattr(ngrams, "HASH_BITS", 12)
    rng = random.Random(1)
    documents = [[rng.randrange(9) for _ in range(4_000)]]
    texts = [documents[0][50:60], [rng.randrange(9) for _ in range(12)]]
    found = searched(indexed(texts, 5), documents)
    assert found.starts.tolist() == [start for start, _ in expected_runs(documents, texts, 5)]


def test_an_index_without_distinct_hashes_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(ngrams, "HASH_BITS", 1)
    with pytest.raises(UsageError, match="no hash tells all runs of 2 ids apart"):
        indexed([list(range(200))], 2)


@pytest.mark.parametrize("texts", [[], [[]], [[1, 2]]])
def test_nothing_is_found_without_a_text_that_is_long_enough(texts) -> None:
    assert not len(searched(indexed(texts, 3), [[1, 2, 3, 4]]).starts)


def expected_overlap(ids: Ids, text: Ids, n: int) -> tuple[int, int, int]:
    """Return the shared ids of a document, and the longest stretch of shared runs: begin, ids."""
    shared = set(runs_of(text, n))
    is_shared = [run in shared for run in runs_of(ids, n)]
    covered = {i + j for i, has in enumerate(is_shared) if has for j in range(n)}
    best = (0, 0)
    for start in range(len(is_shared)):
        stop = start
        while stop < len(is_shared) and is_shared[stop]:
            stop += 1
        if stop - start > best[1]:
            best = (start, stop - start)
    return len(covered), best[0], best[1] + n - 1


@pytest.mark.parametrize("n", [1, 2, 5])
def test_what_a_document_shares_with_each_text_is_counted(n) -> None:
    for seed in range(60):
        documents, texts = random_case(random.Random(seed))
        index = indexed(texts, n)
        found = searched(index, documents[:1])
        if not len(found.starts):
            continue
        got = {o.text: (o.n_tokens, o.start, o.n_run) for o in index.overlaps(found, most=10)}
        shares = [set(runs_of(text, n)) & set(runs_of(documents[0], n)) for text in texts]
        assert got == {
            number: expected_overlap(documents[0], texts[number], n)
            for number, shared in enumerate(shares)
            if shared
        }


def test_a_text_that_only_a_rare_run_names_comes_before_the_many_of_a_common_one() -> None:
    common, rare = list(range(10)), list(range(50, 60))
    texts = [[*common, 200 + i] for i in range(30)] + [common + rare]
    index = indexed(texts, 5)
    found = searched(index, [common + rare])
    overlaps = index.overlaps(found, most=3)
    assert [(o.text, o.n_tokens, o.n_texts) for o in overlaps] == [
        (30, 20, 1),
        (0, 10, 31),
        (1, 10, 31),
    ]
