from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tokmill.offsets import concat_tokens, split_by_bytes
from tokmill.values import TokenBatch

TEXT = pa.array(["aa", "b", "", "猫", "dddd"], pa.large_string())


@pytest.mark.parametrize(
    ("n_bytes", "expected"),
    [
        (3, [["aa", "b", ""], ["猫"], ["dddd"]]),
        (1, [["aa"], ["b", ""], ["猫"], ["dddd"]]),
        (100, [["aa", "b", "", "猫", "dddd"]]),
    ],
)
def test_pieces_hold_whole_documents_up_to_a_size(n_bytes, expected):
    assert [piece.to_pylist() for piece in split_by_bytes(TEXT, n_bytes)] == expected


def test_pieces_of_a_slice_begin_where_it_begins():
    assert [piece.to_pylist() for piece in split_by_bytes(TEXT.slice(3), 3)] == [["猫"], ["dddd"]]


def test_no_documents_are_no_pieces():
    assert list(split_by_bytes(TEXT.slice(0, 0), 3)) == []


def test_joined_batches_are_the_batch_of_all_documents():
    first = TokenBatch(np.array([1, 2, 3], np.uint32), np.array([0, 1, 3], np.int64))
    second = TokenBatch(np.array([4], np.uint32), np.array([0, 0, 1], np.int64))
    batch = concat_tokens([first, second])
    assert batch.ids.tolist() == [1, 2, 3, 4]
    assert batch.offsets.tolist() == [0, 1, 3, 3, 4]
    assert concat_tokens([first]) is first
