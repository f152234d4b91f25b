from __future__ import annotations

import pyarrow as pa
import pytest

from tokmill.sources.row_reader import split_rows

LONG = "x" * 1000


@pytest.mark.parametrize("n_bytes", [1, 30, 1030, 1 << 20])
def test_slices_hold_every_row_once_and_at_most_so_many_bytes(n_bytes):
    batch = pa.RecordBatch.from_pydict({"t": ["a", "b", LONG, "d", "e"], "n": [1, 2, 3, 4, 5]})
    found = list(split_rows(batch, n_bytes))
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches([batch]))
    assert all(part.nbytes <= n_bytes or part.num_rows == 1 for part in found)
    assert list(split_rows(batch.slice(0, 0), 10)) == []


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("kind", ["dictionary", "view"])
def test_few_bytes_in_memory_that_are_many_decoded_are_sliced_too(kind, nested):
    array = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int32()), pa.array([LONG]))
    if kind == "view":
        array = array.dictionary_decode().cast(pa.string_view())
    if nested:
        array = pa.StructArray.from_arrays([array], ["inside"])
    batch = pa.RecordBatch.from_arrays([array], ["c"])
    found = list(split_rows(batch, 100_000))
    assert pa.Table.from_batches(found).to_pylist() == batch.to_pylist()
    assert all(part.nbytes <= 100_000 for part in found)


def test_dictionaries_of_long_texts_are_decoded_within_the_limit(allocated):
    values = pa.array(["x" * 1_000_000, "y"])
    numbers = pa.array([0, 1] * 256, pa.int32())
    batch = pa.RecordBatch.from_arrays([pa.DictionaryArray.from_arrays(numbers, values)], ["c"])
    with allocated() as memory:
        n_rows = sum(part.num_rows for part in split_rows(batch, 4_000_000))
    assert n_rows == 512
    assert memory.peak_bytes < 20_000_000  # of 256 MB


def test_dictionaries_of_structs_in_a_list_are_decoded():
    entries = pa.array([{"a": "x"}, {"a": "y"}])
    inside = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int32()), entries)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), inside)
    batch = pa.RecordBatch.from_arrays([lists], ["c"])
    found = pa.Table.from_batches(list(split_rows(batch, 1 << 20))).to_pylist()
    assert found == [{"c": [{"a": "x"}]}, {"c": [{"a": "y"}, {"a": "x"}]}]
