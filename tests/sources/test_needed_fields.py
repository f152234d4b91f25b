"""What is wrong in a field that is not read does not lose the record."""

from __future__ import annotations

import gzip

import pyarrow as pa
import pytest

from tokmill.settings.schema import InputSettings
from tokmill.sources.files import discover
from tokmill.sources.first_records import first_of_file

ITEMS = pa.list_(pa.struct([("content", pa.string())]))
SCHEMA = pa.schema([("text", pa.string()), ("sections", ITEMS)])
UNREAD = {
    "half a pair": b'{"title": "\\ud800", "text": "a b"}',
    "no UTF-8": b'{"title": "\xff", "text": "a b"}',
    "a large number": b'{"text": "a b", "id": 1e400}',
    "no number": b'{"n": NaN, "text": "a b"}',
    "a key twice": b'{"id": 1, "id": 2, "text": "a b"}',
    "an inner key twice": b'{"meta": {"a": 1, "a": "x"}, "text": "a b"}',
    "a bad key": b'{"\xff": 1, "\\udc00": 2, "text": "a b"}',
    "inside a list": b'{"sections": [{"x": "\\udc00", "content": "c"}], "text": "a b"}',
}
READ = {
    "half a pair": b'{"text": "a \\ud800"}',
    "no UTF-8": b'{"text": "a \xff"}',
    "encoded half": b'{"text": "a \xed\xa0\x80"}',
    "a key twice": b'{"text": "a", "text": "b"}',
    "inside a list": b'{"sections": [{"content": "\\udc00"}], "text": "a b"}',
    "an inner key twice": b'{"sections": [{"content": "a", "content": "b"}]}',
    "cut off": b'{"text": "a b", "title": "c}',
    "two records": b'{"text": "a b"} {"title": "\\ud800"}',
    "a number": b'{"text": NaN}',
}


@pytest.mark.parametrize("batch_bytes", [1, 1 << 20])
@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "json"])
@pytest.mark.parametrize("what", UNREAD)
def test_a_field_that_is_not_read_may_hold_anything(what, ending, batch_bytes, tmp_path, read):
    lines = [b'{"text": "first"}', UNREAD[what], b'{"text": "last"}']
    data = b"[" + b",\n".join(lines) + b"]" if ending == "json" else b"\n".join([*lines, b""])
    path = tmp_path / f"a.{ending}"
    path.write_bytes(gzip.compress(data) if ending.endswith("gz") else data)
    found = read(path, schema=SCHEMA, batch_bytes=batch_bytes)
    assert [row["text"] for row in found.rows] == ["first", "a b", "last"]
    assert [place.line for place in found.places] == [1, 2, 3]
    assert found.rejects == []


@pytest.mark.parametrize("batch_bytes", [1, 1 << 20])
@pytest.mark.parametrize("what", READ)
def test_what_is_wrong_in_a_field_that_is_read_makes_a_reject(what, batch_bytes, tmp_path, read):
    (tmp_path / "a.jsonl").write_bytes(
        b'{"text": "first"}\n' + READ[what] + b'\n{"text": "last"}\n'
    )
    found = read(tmp_path / "a.jsonl", schema=SCHEMA, batch_bytes=batch_bytes)
    assert [row["text"] for row in found.rows] == ["first", "last"]
    assert [(line, raw) for line, _, _, raw in found.rejects] == [(2, READ[what])]


@pytest.mark.parametrize("batch_bytes", [1, 1 << 20])
def test_a_cell_that_is_not_read_may_hold_bytes_that_are_not_utf8(batch_bytes, tmp_path, read):
    data = b"title,text\nx,first\n\xff,a b\ny,a \xff\n\xff,last\n"
    (tmp_path / "a.csv").write_bytes(data)
    schema = pa.schema([("text", pa.string())])
    found = read(tmp_path / "a.csv", schema=schema, batch_bytes=batch_bytes)
    assert [row["text"] for row in found.rows] == ["first", "a b", "last"]
    assert [(line, reason) for line, _, reason, _ in found.rejects] == [(3, "invalid UTF-8")]
    advice = "--on-bad-text=replace writes U+FFFD for it"
    assert found.messages == [f"byte 0xff at byte 4 of the record: invalid start byte; {advice}"]


@pytest.mark.parametrize("what", UNREAD)
def test_such_records_show_which_fields_hold_text(what, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(UNREAD[what] + b"\n")
    settings = InputSettings(paths=(str(path),))
    (file,) = discover(settings).files
    (record,) = first_of_file(file, settings, 9, 1 << 20, whole=False)
    assert record["text"] == "a b"
