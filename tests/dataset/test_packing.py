from __future__ import annotations

import tracemalloc
from collections import defaultdict
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.dataset import packing
from tokmill.dataset.layout import pack_names
from tokmill.dataset.manifest import Manifest, PackEntry, ShardRow
from tokmill.dataset.packing import MEMORY_BYTES_PER_SAMPLE, Packs, pack, pack_documents
from tokmill.dataset.packs import (
    open_packs,
    write_pack_index,
    write_packs,
)
from tokmill.dataset.reader import open_shard
from tokmill.dataset.writer import ShardWriter
from tokmill.errors import UsageError


def packed(lengths: list[int], capacity: int) -> list[list[int]]:
    return rows_of(pack(np.array(lengths, np.int32), capacity))


def rows_of(packing: Packs) -> list[list[int]]:
    offsets = packing.row_offsets
    assert (offsets.dtype, packing.samples.dtype) == (np.int64, np.int64)
    return [packing.samples[offsets[i] : offsets[i + 1]].tolist() for i in range(packing.n_rows)]


def one_by_one(lengths: list[int], capacity: int, max_samples: int = 1 << 30) -> list[list[int]]:
    """Pack as the words say: longest first, into the row with the least room, the first to it."""
    rows: list[list[int]] = []
    room: list[int] = []
    since: list[int] = []
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    for time, i in enumerate(order):
        fitting = [
            row
            for row in range(len(rows))
            if room[row] >= lengths[i] and len(rows[row]) < max_samples
        ]
        if fitting:
            row = min(fitting, key=lambda row: (room[row], since[row]))
        else:
            row = len(rows)
            rows.append([])
            room.append(capacity)
            since.append(0)
        rows[row].append(i)
        room[row] -= lengths[i]
        since[row] = time
    return sorted(sorted(row) for row in rows)


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([], []),
        ([10], [[0]]),
        ([1] * 10, [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]]),
        ([1] * 11, [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [10]]),
        ([4, 3, 2, 10], [[0, 1, 2], [3]]),
        ([3, 7, 6, 4], [[0, 1], [2, 3]]),  # 4 goes to 6, which it fills, and 3 to 7
        ([2, 5, 8, 2, 5], [[0, 2], [1, 4], [3]]),
        ([3, 3, 3, 3], [[0, 1, 2], [3]]),
        ([6, 6, 4, 4], [[0, 2], [1, 3]]),  # of equal rows, the first takes the first
        ([5, 6, 6, 2, 2, 2, 2], [[0], [1, 3, 4], [2, 5, 6]]),
    ],
)
def test_samples_go_to_the_row_with_the_least_room(lengths, expected):
    assert packed(lengths, 10) == expected == one_by_one(lengths, 10)


@given(st.lists(st.integers(1, 40), max_size=120), st.integers(40, 100))
def test_rows_are_those_of_packing_one_by_one(lengths, capacity):
    assert packed(lengths, capacity) == one_by_one(lengths, capacity)


@given(st.lists(st.integers(1, 40), max_size=120), st.integers(40, 100), st.integers(1, 9))
def test_rows_with_a_most_number_of_samples_are_those_of_packing_one_by_one(
    lengths, capacity, max_samples
):
    rows = rows_of(pack(np.array(lengths, np.int32), capacity, max_samples))
    assert rows == one_by_one(lengths, capacity, max_samples)
    assert all(len(row) <= max_samples for row in rows)


@pytest.mark.parametrize(
    ("lengths", "named"),
    [([3, 11, 10], "sample 1: 11 tokens"), ([3, 0], "sample 1: 0 tokens"), ([-1], "sample 0: -1")],
)
def test_a_sample_that_fits_no_row_is_refused_and_named(lengths, named):
    with pytest.raises(UsageError) as caught:
        packed(lengths, 10)
    assert named in str(caught.value)
    assert str(caught.value).endswith(
        "but a packed row holds 1 to 10: set --max-tokens to at most 10"
    )


def shard(directory: Path, split: str, part: int, lengths: list[int]) -> ShardRow:
    stem = f"{split}-{part:07d}-0000"
    writer = ShardWriter(directory, split, stem, np.dtype("<u2"))
    writer.append(np.ones(sum(lengths), np.uint16), np.array(lengths))
    entry = writer.commit()
    return ShardRow(stem, split, len(lengths), entry.tokens)


@pytest.mark.parametrize("longest", [2, 10, 20])
def test_packing_a_sample_takes_the_documented_memory(tmp_path: Path, longest):
    n = 100_000
    lengths = np.random.default_rng(0).integers(1 if longest < 20 else 11, longest + 1, n)
    entry = shard(tmp_path, "train", 0, lengths.tolist())
    tracemalloc.start()
    try:
        write_packs(tmp_path, [entry], 20, "blake3")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert MEMORY_BYTES_PER_SAMPLE * 0.6 < peak / n < MEMORY_BYTES_PER_SAMPLE + 1


# The files


EOS = 2


def test_the_index_is_two_files_of_eight_byte_numbers(tmp_path: Path):
    made = Packs(np.array([0, 2, 3]), np.array([0, 2, 1]))
    entries = write_pack_index(tmp_path, pack_names("train", 9, ""), [made], "blake3")
    assert [(entry.name, entry.n_bytes) for entry in entries] == [
        ("packs-train-rows.bin", 24),
        ("packs-train-samples.bin", 24),
    ]
    assert (tmp_path / "packs-train-rows.bin").read_bytes() == bytes.fromhex(
        "0000000000000000 0200000000000000 0300000000000000"
    )
    index = open_packs(tmp_path, "train", PackEntry(9, 2, 3, 3, 1.0))
    assert index.n_rows == 2
    assert [index.row(i).tolist() for i in range(2)] == [[0, 2], [1]]
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o444}


# Parts: rows as shards of their own


def test_rows_are_their_samples_end_to_end_and_eos_that_is_not_trained(make_sft):
    directory, manifest = make_sft(packed=5)
    read = Manifest.of(manifest, directory)
    shards = [
        open_shard(directory, read, entry)
        for of_split in read.packs.values()
        for entry in of_split.shards
    ]
    assert [shard.name for shard in shards] == [
        "packed-train-0000",
        "packed-train-0001",
        "packed-val-0000",
    ]
    ids = [shard.document(i).tolist() for shard in shards for i in range(len(shard.lengths))]
    assert ids == [
        [1, 7, 8, 3, EOS],
        [1, 9, 3, 1, 3],
        [1, 11, 12, 13, 3],
        [1, 10, 3, EOS, EOS],
    ]
    masks = [shard.sample_mask(i).tolist() for shard in shards for i in range(len(shard.lengths))]
    assert masks == [[0, 0, 1, 1, 0], [0, 1, 1, 0, 1], [0, 1, 0, 1, 1], [0, 1, 1, 0, 0]]


# Documents are cut, and pieces packed


Piece = tuple[int, int, int]
"""A document, its first token, tokens."""


def groups_of(lengths: list[list[int]], capacity: int, last: str) -> list[list[list[Piece]]]:
    """Return the pieces of every row, by group."""
    arrays = [np.array(some, np.int32) for some in lengths]
    return [pieces_of(packs) for packs in pack_documents(arrays, capacity, last)]


def pieces_of(packs: Packs) -> list[list[Piece]]:
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


def test_a_document_of_as_many_tokens_as_an_index_can_say_is_cut():
    (packs,) = pack_documents([np.array([(1 << 31) - 1], np.int32)], 1 << 28, "fragment")
    assert pieces_of(packs)[-1] == [(0, 7 << 28, (1 << 28) - 1)]


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
    few, many = peak_bytes(50_000), peak_bytes(150_000)
    assert many < few * 1.05
    assert many < (1 << 15) * 150
