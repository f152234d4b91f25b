from __future__ import annotations

import pyarrow as pa

from tokmill.batch import Place
from tokmill.sources.rows import RowBlock, dropped, sliced

BATCH = pa.RecordBatch.from_pydict({"t": ["a", "b", "c", "d", "e"], "n": [1, 2, 3, 4, 5]})


def test_slices_are_about_as_large_as_asked_and_lose_nothing():
    for n_bytes in (1, 20, 40, 1000):
        parts = list(sliced(BATCH, n_bytes))
        assert pa.Table.from_batches(parts).to_pylist() == BATCH.to_pylist()
        assert len(parts) == {1: 5, 20: 3, 40: 2, 1000: 1}[n_bytes]
    assert list(sliced(BATCH.slice(0, 0), 10)) == []


def test_the_first_rows_are_dropped_over_batches():
    for n_rows in range(7):
        rest = [row["n"] for batch in dropped([BATCH, BATCH], n_rows) for row in batch.to_pylist()]
        assert rest == [1, 2, 3, 4, 5, 1, 2, 3, 4, 5][n_rows:]


def test_a_row_answers_for_itself():
    schema = pa.schema([("t", pa.string())])
    records = RowBlock(BATCH, schema, 10, ["t", "n"], 100, 7, "f").parse()
    assert records.batch.to_pylist() == [{"t": t} for t in "abcde"]
    assert records.lookup.place(2) == Place(13, -1)
    assert records.lookup.raw(2) == b'{"t": "c", "n": 3}'
    assert records.lookup.keys(0) == ["t", "n"]


def test_a_rejected_row_shows_its_bytes():
    texts = pa.array([b"a", b"x\xff"]).view(pa.string())
    batch = pa.RecordBatch.from_arrays([texts], ["t"])
    block = RowBlock(batch, pa.schema([("t", pa.string())]), 0, ["t"], 100, 7, "f")
    (reject,) = block.parse().rejects
    assert reject.place == Place(2, -1)
    assert reject.raw == b'{"t": "x\\\\xff"}'
