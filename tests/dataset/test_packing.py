from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.dataset.packing import MEMORY_BYTES_PER_SAMPLE, Packs, pack
from tokmill.dataset.packs import open_packs, write_packs
from tokmill.dataset.writer import ShardWriter
from tokmill.errors import UsageError, VerifyError


def packed(lengths: list[int], capacity: int) -> list[list[int]]:
    return rows_of(pack(np.array(lengths, np.int32), capacity))


def rows_of(packing: Packs) -> list[list[int]]:
    offsets = packing.row_offsets
    assert (offsets.dtype, packing.samples.dtype) == (np.int64, np.int64)
    return [packing.samples[offsets[i] : offsets[i + 1]].tolist() for i in range(packing.n_rows)]


def one_by_one(lengths: list[int], capacity: int) -> list[list[int]]:
    """Pack as the words say: longest first, into the row with the least room, the first to it."""
    rows: list[list[int]] = []
    room: list[int] = []
    since: list[int] = []
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    for time, i in enumerate(order):
        fitting = [row for row in range(len(rows)) if room[row] >= lengths[i]]
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


def shard(directory: Path, split: str, part: int, lengths: list[int]) -> dict[str, Any]:
    stem = f"{split}-{part:07d}-0000"
    writer = ShardWriter(directory, split, stem, np.dtype("<u2"))
    writer.append(np.ones(sum(lengths), np.uint16), np.array(lengths))
    entry = writer.commit()
    return {"name": stem, "split": split, "documents": len(lengths), "tokens": entry.n_tokens}


def test_packs_of_every_split_are_written_and_described(tmp_path: Path):
    shards = [
        shard(tmp_path, "train", 0, [3, 7]),
        shard(tmp_path, "val", 0, [9]),
        shard(tmp_path, "train", 1, [6, 4]),
    ]
    files, found = write_packs(tmp_path, shards, 10, "blake3")
    assert [entry.name for entry in files] == [
        "packs-train-rows.bin",
        "packs-train-samples.bin",
        "packs-val-rows.bin",
        "packs-val-samples.bin",
    ]
    both = {"capacity": 10, "bytes_per_sample": MEMORY_BYTES_PER_SAMPLE}
    assert found == {
        "train": {**both, "rows": 2, "samples": 4, "tokens": 20, "fill": 1.0},
        "val": {**both, "rows": 1, "samples": 1, "tokens": 9, "fill": 0.9},
    }
    assert json.loads(json.dumps(found)) == found
    packs = open_packs(tmp_path, "train", {})
    assert [packs.row(i).tolist() for i in range(packs.n_rows)] == [[0, 1], [2, 3]]


def test_a_dataset_without_samples_has_no_packs(tmp_path: Path):
    assert write_packs(tmp_path, [], 10, "blake3") == ([], {})
    assert list(tmp_path.iterdir()) == []


def test_a_sample_longer_than_a_row_writes_nothing(tmp_path: Path):
    shards = [shard(tmp_path, "train", 0, [3, 11])]
    with pytest.raises(UsageError, match="sample 1: 11 tokens"):
        write_packs(tmp_path, shards, 10, "blake3")
    assert not list(tmp_path.glob("packs-*"))


def test_a_missing_index_is_a_broken_promise(tmp_path: Path):
    entry = shard(tmp_path, "train", 0, [3])
    (tmp_path / "train-0000000-0000.idx").unlink()
    with pytest.raises(VerifyError, match=r"0000000-0000\.idx"):
        write_packs(tmp_path, [entry], 10, "blake3")


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
