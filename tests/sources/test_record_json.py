from __future__ import annotations

import datetime as dt
import decimal
import json

import pyarrow as pa
import pyarrow.parquet as pq

from tokmill.settings.schema import InputSettings
from tokmill.sources.blocks import row_batch
from tokmill.sources.files import discover
from tokmill.sources.formats import cut, open_slice
from tokmill.values import WHOLE_RECORD

WHOLE = pa.schema([(WHOLE_RECORD, pa.large_string())])
RECORDS = [{"a": 1, "b": ["x", None]}, {"b": [], "c": {"d": "中"}}]


def read(path, **settings) -> tuple[list[str], list[str]]:
    """Give the whole records of a file, and the reasons of its rejects."""
    chosen = InputSettings(paths=(str(path),), **settings)
    texts, reasons = [], []
    for file in discover(chosen).files:
        for piece in cut(file, 1 << 30):
            with open_slice(piece, chosen, WHOLE, 64) as reader:
                for block in reader.blocks():
                    records = block.parse()
                    texts += records.batch.column(0).to_pylist()
                    reasons += [reject.reason for reject in records.rejects]
    return texts, reasons


def test_lines_of_json_are_given_as_they_stand(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b'  {"a": 1,  "b": [{"c": null}]}\r\n\nno\n{"x":"\xe4\xb8\xad"}\n{"bad": "\xff"}'
    )
    texts, reasons = read(path)
    # What is no text is marked: whoever reads the field must refuse the record.
    assert texts == ['{"a": 1,  "b": [{"c": null}]}', '{"x":"中"}', r'{"bad": "\udfff"}']
    assert reasons == ["not an object"]


def test_rows_are_written_as_json(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(RECORDS), path)
    assert [json.loads(text) for text in read(path)[0]] == [
        {"a": 1, "b": ["x", None]},
        {"a": None, "b": []},
    ]


def test_the_cells_of_a_csv_are_texts_and_a_repeated_name_is_its_first_column(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('q,a,q\n"1\n2",3,4\n')
    assert [json.loads(text) for text in read(path)[0]] == [{"q": "1\n2", "a": "3"}]


def whole_rows(batch):
    """Return the JSON of each row, None if it has none, and why not."""
    refused = {}
    return row_batch(batch, refused).column(0).to_pylist(), refused


def test_values_that_json_lacks_become_text():
    row = {
        "day": dt.date(2024, 2, 29),
        "price": decimal.Decimal("1.50"),
        "raw": "中".encode(),
    }
    (whole,), bad = whole_rows(pa.RecordBatch.from_pylist([row]))
    assert json.loads(whole) == {
        "day": "2024-02-29",
        "price": "1.50",
        "raw": "中",
    }
    assert bad == {}


def test_a_number_that_is_none_is_written_as_in_json_lines():
    batch = pa.RecordBatch.from_pylist([{"a": "x", "score": float("nan")}])
    assert whole_rows(batch) == (['{"a": "x", "score": NaN}'], {})


def test_plain_text_is_a_record_with_a_text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text('say "hi"\n中')
    assert [json.loads(text) for text in read(path)[0]] == [{"text": 'say "hi"\n中'}]


def test_a_row_that_cannot_be_json_is_left_out_alone():
    batch = pa.RecordBatch.from_pylist([{"a": b"ok"}, {"a": b"\xff"}, {"a": b"ok"}])
    texts, bad = whole_rows(batch)
    assert [text is None for text in texts] == [False, True, False]
    assert list(bad) == [1]
    assert bad[1][1].startswith("cannot be read as text: ")


def test_maps_are_objects_in_rows_where_no_key_stands_twice():
    of_text = pa.array([[("a", 1), ("b", None)], [("a", 1), ("a", 2)], None, []],
                       pa.map_(pa.string(), pa.int64()))  # fmt: skip
    of_others = pa.array([[(b"k", {"x": 1})], [(b"\xff", {"x": 1})], [], []],
                         pa.map_(pa.binary(), pa.struct([("x", pa.int8())])))  # fmt: skip
    days = pa.array([[(dt.date(2026, 1, 2), 1)]] * 4, pa.map_(pa.date32(), pa.int64()))
    texts, refused = whole_rows(pa.record_batch({"m": of_text, "days": days}))
    assert refused == {}
    assert [json.loads(text)["m"] for text in texts] == [
        {"a": 1, "b": None},
        [["a", 1], ["a", 2]],
        None,
        {},
    ]
    assert json.loads(texts[0])["days"] == {"2026-01-02": 1}
    texts, refused = whole_rows(pa.record_batch({"m": of_others}))
    assert json.loads(texts[0]) == {"m": {"k": {"x": 1}}}
    assert refused.keys() == {1}
