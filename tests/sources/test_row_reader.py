from __future__ import annotations

import pyarrow as pa

from tokmill.settings.schema import InputSettings
from tokmill.sources.blocks import Reading
from tokmill.sources.row_reader import RowBlock, RowReader
from tokmill.values import RecordPlace

BATCH = pa.RecordBatch.from_pydict({"t": ["a", "b", "c", "d", "e"], "n": [1, 2, 3, 4, 5]})


def block(batch, schema, first=0, n_bytes=11, names=("t", "n"), head=None):
    settings = InputSettings(max_record_bytes=100)
    reading = Reading(settings, schema, 1 << 20, samples_head=head is not None)
    source = RowReader(reading, "f", names, lambda: [batch], head or (lambda: None))
    return RowBlock([batch], source, first, 7, n_bytes)


def test_a_row_answers_for_itself():
    schema = pa.schema([("t", pa.string())])
    records = block(BATCH, schema, 10).parse()
    assert records.batch.to_pylist() == [{"t": t} for t in "abcde"]
    assert records.places[2].tolist() == [13, -1]
    assert records.raw(2) == b'{"t": "c", "n": 3}'
    assert records.keys(0) == ["t", "n"]


def test_a_rejected_row_shows_its_bytes():
    texts = pa.array([b"a", b"x\xff"]).view(pa.string())
    batch = pa.RecordBatch.from_arrays([texts], ["t"])
    (reject,) = block(batch, pa.schema([("t", pa.string())])).parse().rejects
    assert reject.place == RecordPlace(2, -1)
    assert reject.raw == b'{"t": "x\\\\xff"}'


def test_a_row_that_no_offset_of_32_bits_could_hold_is_refused_unseen():
    schema = pa.schema([("t", pa.string())])
    batch = pa.RecordBatch.from_pydict({"t": pa.array(["x" * 2000], pa.large_string())})
    records = block(batch, schema, 10, 3 << 30).parse()
    assert records.batch.num_rows == 0
    assert records.batch.schema == schema
    (reject,) = records.rejects
    assert reject.place == RecordPlace(11, -1)
    assert reject.reason == "record too large"
    assert reject.message == "3221225472 bytes, over max_record_bytes = 100"
    assert reject.raw == b'{"t": "' + b"x" * 1017


def test_a_shown_text_of_a_dictionary_is_its_value():
    batch = pa.RecordBatch.from_pydict({"t": pa.array(["a", None]).dictionary_encode()})
    records = block(batch, pa.schema([("t", pa.string())])).parse()
    assert [records.raw(row) for row in range(2)] == [b'{"t": "a"}', b'{"t": null}']


def test_the_head_is_read_by_the_thread_that_parses_and_gives_samples_of_fitted_rows():
    schema, calls = pa.schema([("t", pa.string())]), []

    def head():
        calls.append("read")
        return BATCH.slice(0, 2)

    made = block(BATCH, schema, head=head)
    assert calls == []
    assert made.parse().samples == [(0, {"t": "a", "n": 1}), (1, {"t": "b", "n": 2})]
    assert calls == ["read"]
    # None: the block has all columns of the file.
    alone = block(BATCH.select(["t"]), schema, head=lambda: None)
    assert alone.parse().samples[:2] == [(0, {"t": "a"}), (1, {"t": "b"})]
