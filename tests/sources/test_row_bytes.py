from __future__ import annotations

import pyarrow as pa
import pytest

from tokmill.sources.row_reader import row_bytes, split_rows

LONG = "x" * 1000
TEXTS = ["a", None, LONG, "", "bb"]
SECTION = pa.struct([("title", pa.string()), ("content", pa.string())])
LISTS = [[LONG, "a"], None, ["b", "c"], [LONG, LONG]]


def one_column(array: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([array], ["c"])


def sizes_of(array: pa.Array) -> list[int]:
    """Return the sizes of rows, none of which may depend on where its array was cut."""
    whole = row_bytes(one_column(array)).tolist()
    for start in range(len(array)):
        assert row_bytes(one_column(array.slice(start, 2))).tolist() == whole[start : start + 2]
    return whole


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view()]
)
def test_text_of_any_layout_takes_its_bytes_and_a_little(kind):
    base = 16 if kind == pa.string_view() else 4
    assert sizes_of(pa.array(TEXTS, kind)) == [base + n + 1 for n in (1, 0, 1000, 0, 2)]


def test_a_value_of_a_dictionary_counts_for_every_row_that_has_it():
    indices = pa.array([0, 1, 1, None, 1], pa.int8())
    array = pa.DictionaryArray.from_arrays(indices, pa.array(["a", LONG, "never"]))
    assert sizes_of(array) == [6, 1005, 1005, 5, 1005]


def test_a_value_of_a_run_counts_for_every_row_of_it():
    array = pa.RunEndEncodedArray.from_arrays([3, 4], pa.array([LONG, "a"]))
    assert sizes_of(array) == [1005, 1005, 1005, 6]


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.string()),
        pa.large_list(pa.string()),
        pa.list_(pa.string(), 2),
        pa.list_view(pa.string()),
    ],
)
def test_a_list_takes_what_its_values_take(kind):
    assert sizes_of(pa.array(LISTS, kind)) == [1014, 5, 15, 2013]


def test_nested_text_is_counted():
    rows = [[{"title": "t", "content": LONG}], None, [], [{"title": None, "content": "c"}, None]]
    assert sizes_of(pa.array(rows, pa.list_(SECTION))) == [1014, 5, 5, 22]
    pairs = pa.array([[("k", LONG)], [], None], pa.map_(pa.string(), pa.string()))
    assert sizes_of(pairs) == [1014, 5, 5]


def test_slices_hold_every_row_once_and_at_most_so_many_bytes():
    batch = pa.RecordBatch.from_pydict({"t": ["a", "b", LONG, "d", "e"], "n": [1, 2, 3, 4, 5]})
    for n_bytes, n_rows in ((1, [1] * 5), (30, [2, 1, 2]), (1030, [2, 2, 1]), (1 << 20, [5])):
        found = list(split_rows(batch, n_bytes))
        assert pa.Table.from_batches([part for part, _ in found]).equals(
            pa.Table.from_batches([batch])
        )
        assert [part.num_rows for part, _ in found] == n_rows
        assert all(size <= n_bytes or part.num_rows == 1 for part, size in found)
    assert list(split_rows(batch.slice(0, 0), 10)) == []


def test_few_bytes_in_memory_that_are_many_decoded_are_sliced_too():
    indices = pa.array([0] * 1000, pa.int32())
    batch = one_column(pa.DictionaryArray.from_arrays(indices, pa.array([LONG])))
    assert batch.nbytes < 6000
    assert [part.num_rows for part, _ in split_rows(batch, 100_000)] == [99] * 10 + [10]
