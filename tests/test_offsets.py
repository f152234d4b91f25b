from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.offsets import (
    encode_in_calls,
    indices_of,
    merge_tokens,
    offsets_of,
    select_documents,
    split_by_bytes,
    starts_run,
)
from tokmill.values import TokenBatch

DOCUMENTS = st.lists(st.lists(st.integers(0, 65_535), max_size=4), max_size=6)
TEXT = pa.array(["aa", "b", "", "猫", "dddd"], pa.large_string())


@pytest.mark.parametrize(
    ("n_bytes", "expected"),
    [
        (3, [["aa", "b", ""], ["猫"], ["dddd"]]),
        (1, [["aa"], ["b", ""], ["猫"], ["dddd"]]),
        (100, [["aa", "b", "", "猫", "dddd"]]),
    ],
)
def test_slices_hold_complete_documents_up_to_a_size(n_bytes, expected):
    assert [found.to_pylist() for found in split_by_bytes(TEXT, n_bytes)] == expected


@pytest.mark.parametrize("n_bytes", [1, 3, 100])
def test_texts_encoded_by_several_calls_are_the_batch_of_all_texts(n_bytes):
    def call(text):
        data = text.to_pylist()
        ids = np.frombuffer("".join(data).encode(), np.uint8).astype(np.uint32)
        return TokenBatch(ids, offsets_of(np.array([len(one.encode()) for one in data])))

    batch = encode_in_calls(TEXT, n_bytes, call)
    assert batch.ids.tolist() == list("aab猫dddd".encode())
    assert batch.lengths.tolist() == [2, 1, 0, 3, 4]
    assert encode_in_calls(TEXT[:0], n_bytes, call).offsets.tolist() == [0]


def test_merged_batches_keep_the_order_and_the_routed_documents():
    first = TokenBatch(np.array([1, 2, 3], np.uint32), np.array([0, 2, 3]), np.array([1]))
    rest = TokenBatch(np.array([9], np.uint32), np.array([0, 1]), np.array([0]))
    batch = merge_tokens(first, rest, np.array([False, True, False]))
    assert batch.ids.tolist() == [1, 2, 9, 3]
    assert batch.offsets.tolist() == [0, 2, 3, 4]
    assert batch.routed.tolist() == [1, 2]


@given(documents=DOCUMENTS, data=st.data())
def test_documents_are_selected_as_a_loop_selects_them(documents, data):
    n = len(documents)
    keep = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
    ids = np.array([token for document in documents for token in document], np.uint32)
    batch = TokenBatch(ids, offsets_of(np.array([len(document) for document in documents], int)))
    kept = select_documents(batch, np.array(keep, bool))
    found = [kept.ids[kept.offsets[i] : kept.offsets[i + 1]].tolist() for i in range(sum(keep))]
    assert found == [document for document, chosen in zip(documents, keep, strict=True) if chosen]


def test_offsets_and_indices_of_ranges_are_end_to_end():
    lengths = np.array([2, 0, 3])
    assert offsets_of(lengths).tolist() == [0, 2, 2, 5]
    assert indices_of(np.array([5, 9, 1]), lengths).tolist() == [5, 6, 1, 2, 3]
    assert offsets_of(lengths[:0]).tolist() == [0]


def test_a_run_starts_where_the_value_changes():
    assert starts_run(np.array([1, 1, 2, 5, 5])).tolist() == [1, 0, 1, 1, 0]
    assert starts_run(np.zeros(0, np.int64)).tolist() == []
