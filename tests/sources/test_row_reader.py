from __future__ import annotations

import pyarrow as pa

from tokmill.sources.row_reader import RowBlock
from tokmill.values import Place

BATCH = pa.RecordBatch.from_pydict({"t": ["a", "b", "c", "d", "e"], "n": [1, 2, 3, 4, 5]})


def test_a_row_answers_for_itself():
    schema = pa.schema([("t", pa.string())])
    records = RowBlock([BATCH], schema, 10, ["t", "n"], 100, 7, "f", 65).parse()
    assert records.batch.to_pylist() == [{"t": t} for t in "abcde"]
    assert records.lookup.place(2) == Place(13, -1)
    assert records.lookup.raw(2) == b'{"t": "c", "n": 3}'
    assert records.lookup.keys(0) == ["t", "n"]


def test_a_rejected_row_shows_its_bytes():
    texts = pa.array([b"a", b"x\xff"]).view(pa.string())
    batch = pa.RecordBatch.from_arrays([texts], ["t"])
    block = RowBlock([batch], pa.schema([("t", pa.string())]), 0, ["t"], 100, 7, "f", 11)
    (reject,) = block.parse().rejects
    assert reject.place == Place(2, -1)
    assert reject.raw == b'{"t": "x\\\\xff"}'


def test_a_row_that_no_offset_of_32_bits_could_hold_is_refused_unseen():
    schema = pa.schema([("t", pa.string())])
    batch = pa.RecordBatch.from_pydict({"t": pa.array(["x" * 2000], pa.large_string())})
    block = RowBlock([batch], schema, 10, ["t"], 100, 7, "f", 3 << 30)
    records = block.parse()
    assert records.batch.num_rows == 0
    assert records.batch.schema == schema
    (reject,) = records.rejects
    assert reject.place == Place(11, -1)
    assert reject.reason == "record too large"
    assert reject.message == "3221225472 bytes, over max_record_bytes = 100"
    assert reject.raw == b'{"t": "' + b"x" * 1017


def test_a_shown_text_of_a_dictionary_is_its_value():
    batch = pa.RecordBatch.from_pydict({"t": pa.array(["a", None]).dictionary_encode()})
    records = RowBlock([batch], pa.schema([("t", pa.string())]), 0, ["t"], 9, 1, "f", 9).parse()
    assert [records.lookup.raw(row) for row in range(2)] == [b'{"t": "a"}', b'{"t": null}']


def test_the_head_is_read_by_the_thread_that_parses_and_gives_samples_of_fitted_rows():
    schema, calls = pa.schema([("t", pa.string())]), []

    def head():
        calls.append("read")
        return BATCH.slice(0, 2)

    block = RowBlock([BATCH], schema, 0, ["t", "n"], 100, 7, "f", 65, head)
    assert calls == []
    assert block.parse().samples == [(0, {"t": "a", "n": 1}), (1, {"t": "b", "n": 2})]
    assert calls == ["read"]
    # None: the block has all columns of the file.
    alone = RowBlock([BATCH.select(["t"])], schema, 0, ["t"], 100, 7, "f", 65, lambda: None)
    assert alone.parse().samples[:2] == [(0, {"t": "a"}), (1, {"t": "b"})]
