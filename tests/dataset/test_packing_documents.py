"""Documents are cut, and pieces packed: every token stands in one row, or is counted."""

from __future__ import annotations

import tracemalloc
from collections import defaultdict
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dataset.test_packing import one_by_one
from tokmill.dataset import packing
from tokmill.dataset.packing import Packs, pack_documents

Piece = tuple[int, int, int]
"""A document, its first token, tokens."""


def groups_of(lengths: list[list[int]], capacity: int, last: str) -> list[list[list[Piece]]]:
    """Return the pieces of every row, by group."""
    arrays = [np.array(some, np.int32) for some in lengths]
    return [rows_of(packs) for packs in pack_documents(arrays, capacity, last)]


def rows_of(packs: Packs) -> list[list[Piece]]:
    assert packs.pieces is not None
    assert (packs.samples.dtype, packs.pieces.dtype) == (np.int64, np.int32)
    documents = packs.samples.tolist()
    pieces = [(d, *piece) for d, piece in zip(documents, packs.pieces.tolist(), strict=True)]
    return [pieces[packs.span(i)] for i in range(packs.n_rows)]


def cut(lengths: list[int], capacity: int, last: str) -> list[Piece]:
    """Cut documents one by one, as the words say."""
    pieces = []
    for number, length in enumerate(lengths):
        starts = list(range(0, length, capacity))
        if last == "drop" and length > capacity and length % capacity:
            del starts[-1]
        pieces += [(number, start, min(capacity, length - start)) for start in starts]
    return pieces


@pytest.mark.parametrize(
    ("lengths", "last", "expected"),
    [
        ([10], "fragment", [[(0, 0, 10)]]),
        ([10], "drop", [[(0, 0, 10)]]),
        ([4, 6], "drop", [[(0, 0, 4), (1, 0, 6)]]),
        ([24], "fragment", [[(0, 0, 10)], [(0, 10, 10)], [(0, 20, 4)]]),
        ([24], "drop", [[(0, 0, 10)], [(0, 10, 10)]]),
        ([6, 24], "fragment", [[(0, 0, 6), (1, 20, 4)], [(1, 0, 10)], [(1, 10, 10)]]),
        ([1, 11, 1], "fragment", [[(0, 0, 1), (1, 10, 1), (2, 0, 1)], [(1, 0, 10)]]),
        ([], "fragment", []),
    ],
)
def test_long_documents_give_full_rows_and_a_last_piece(lengths, last, expected):
    assert list(chain.from_iterable(groups_of([lengths], 10, last))) == expected


@pytest.mark.parametrize("last", ["fragment", "drop"])
@given(
    st.lists(st.lists(st.integers(1, 90), max_size=20), max_size=6),
    st.integers(2, 40),
    st.integers(1, 25),
)
def test_every_token_is_in_one_row_or_left_out(last, lengths, capacity, group):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(packing, "GROUP_PIECES", group)
        groups = groups_of(lengths, capacity, last)
    together = list(chain.from_iterable(lengths))
    expected = cut(together, capacity, last)
    found = [sorted(piece for row in rows for piece in row) for rows in groups]
    assert found == [expected[i : i + group] for i in range(0, len(expected), group)]
    for rows, pieces in zip(groups, found, strict=True):  # a group is packed as samples are
        numbered = [sorted(pieces.index(piece) for piece in row) for row in rows]
        assert numbered == one_by_one([length for _, _, length in pieces], capacity)
    tokens = defaultdict(list)
    for number, start, length in chain.from_iterable(found):
        tokens[number] += range(start, start + length)
    left_out = 0
    for number, length in enumerate(together):
        assert tokens[number] == list(range(len(tokens[number])))
        left_out += length - len(tokens[number])
        assert length - len(tokens[number]) == (
            length % capacity if last == "drop" and length > capacity else 0
        )
    assert sum(map(len, tokens.values())) + left_out == sum(together)


def test_the_pieces_of_one_document_can_fill_several_groups(monkeypatch):
    monkeypatch.setattr(packing, "GROUP_PIECES", 3)
    groups = groups_of([[5, 35], [3]], 5, "fragment")
    assert [[len(row) for row in rows] for rows in groups] == [[1, 1, 1], [1, 1, 1], [1, 1, 1]]
    assert groups[0][0] == [(0, 0, 5)]
    assert groups[2][1:] == [[(1, 30, 5)], [(2, 0, 3)]]


def test_a_document_of_as_many_tokens_as_an_index_can_say_is_cut():
    (packs,) = pack_documents([np.array([(1 << 31) - 1], np.int32)], 1 << 28, "fragment")
    assert rows_of(packs)[-1] == [(0, 7 << 28, (1 << 28) - 1)]


def peak_bytes(n: int) -> int:
    def some():
        random = np.random.default_rng(0)
        for _ in range(n // 10_000):
            yield random.lognormal(6, 1, 10_000).astype(np.int32) + 1

    tracemalloc.start()
    try:
        assert sum(packs.n_rows for packs in pack_documents(some(), 1024, "fragment")) > n // 4
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_documents(monkeypatch):
    monkeypatch.setattr(packing, "GROUP_PIECES", 1 << 15)
    few, many = peak_bytes(50_000), peak_bytes(400_000)
    assert many < few * 1.05
    assert many < (1 << 15) * 150
