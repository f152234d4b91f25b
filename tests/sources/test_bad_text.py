"""With on_bad_text replace, what is no text in a field that is read becomes U+FFFD."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokmill.values import WHOLE_RECORD

ADVICE = "; --on-bad-text=replace writes U+FFFD for it"
ITEMS = pa.list_(pa.struct([("content", pa.string())]))
SCHEMA = pa.schema([("text", pa.string()), ("sections", ITEMS)])
TEXT = pa.schema([("text", pa.string())])
WHOLE = pa.schema([(WHOLE_RECORD, pa.large_string())])

BYTES = {
    b"a \xff b": 1,
    b"\xe4\xb8 b": 1,  # the first two bytes of three
    b"\xf0\x9f\x98": 1,
    b"\xed\xa0\x80": 3,  # half of a surrogate pair, encoded
    b"\xc0\xaf": 2,
    b"\xff\xfe\xff": 3,
    "\u6c34\U0001f600".encode() + b"\x80": 1,
}
ESCAPED = {
    r"a \ud800": ("a \ufffd", 1),
    r"\udc00\ud800": ("\ufffd\ufffd", 2),
    r"\ud83d\ude00 \ud83d": ("\U0001f600 \ufffd", 1),
    r"\\ud800": (r"\ud800", 0),  # the letters
    "\\ud800\x7f": ("\ufffd\x7f", 1),
}
FORMATS = ["jsonl", "json", "object", "csv", "tsv", "txt", "parquet", "arrow"]


def write(folder, ending, text: bytes):
    """Write a file whose one record has this text, and return it."""
    path = folder / f"a.{ending}"
    if ending in ("jsonl", "object"):
        path.write_bytes(b'{"text": "' + text + b'"}')
    elif ending == "json":
        path.write_bytes(b'[{"text": "' + text + b'"}]')
    elif ending in ("csv", "tsv"):
        path.write_bytes(b"text\n" + text + b"\n")
    elif ending == "txt":
        path.write_bytes(text)
    else:
        table = pa.table({"text": pa.array([text]).view(pa.string())})
        if ending == "parquet":
            pq.write_table(table, path)
        else:
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
    return path


@pytest.mark.parametrize("text", BYTES)
@pytest.mark.parametrize("ending", FORMATS)
def test_bytes_are_replaced_as_python_does(ending, text, tmp_path, read):
    options = {"format": "object"} if ending == "object" else {}
    path = write(tmp_path, ending, text)
    found = read(path, schema=TEXT, on_bad_text="replace", **options)
    assert [row["text"] for row in found.rows] == [text.decode(errors="replace")]
    assert found.replaced == {0: BYTES[text]}
    assert found.rejects == []


@pytest.mark.parametrize("text", BYTES)
@pytest.mark.parametrize("ending", FORMATS)
def test_they_make_a_reject_that_names_the_option(ending, text, tmp_path, read):
    options = {"format": "object"} if ending == "object" else {}
    found = read(write(tmp_path, ending, text), schema=TEXT, **options)
    assert found.rows == []
    (message,) = found.messages
    assert ADVICE in message or "looks like" in message  # it has another encoding


@pytest.mark.parametrize("text", ESCAPED)
@pytest.mark.parametrize("ending", ["jsonl", "json"])
def test_each_half_of_a_pair_is_replaced(ending, text, tmp_path, read):
    wanted, n_replaced = ESCAPED[text]
    path = write(tmp_path, ending, text.encode())
    found = read(path, schema=TEXT, on_bad_text="replace")
    assert [row["text"] for row in found.rows] == [wanted]
    assert sum(found.replaced.values()) == n_replaced
    if n_replaced:
        (message,) = read(path, schema=TEXT).messages
        assert message.endswith(ADVICE)


@pytest.mark.parametrize("batch_bytes", [1, 1 << 20])
def test_only_what_is_read_counts_and_each_row_has_its_own(batch_bytes, tmp_path, read):
    lines = [
        b'{"text": "one"}',
        b'{"text": "\xff\\udc00", "title": "\xff"}',
        b'{"text": "three", "title": "\\ud800"}',
        b'{"text": "four", "sections": [{"content": "\\ud800", "x": "\\ud800"}, {"content": "c"}]}',
        b'{"text": "a \\ud800", "text": "b"}',
        b'{"text": "six"}',
    ]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    found = read(
        tmp_path / "a.jsonl", schema=SCHEMA, batch_bytes=batch_bytes, on_bad_text="replace"
    )
    texts = ["one", "\ufffd\ufffd", "three", "four", "six"]
    assert [row["text"] for row in found.rows] == texts
    assert found.rows[3]["sections"] == [{"content": "\ufffd"}, {"content": "c"}]
    assert {row: n for row, n in found.replaced.items() if n} == {1: 2, 3: 1}
    assert [line for line, *_ in found.rejects] == [5]
    assert ADVICE not in found.messages[0]


def test_json_in_a_cell_is_replaced_too(tmp_path, read):
    sections = json.dumps([{"content": "c\ud800"}]).encode()
    table = pa.table({"text": ["a", "b"], "sections": [sections, b'[{"content": "\xff"}]']})
    pq.write_table(table, tmp_path / "a.parquet")
    found = read(tmp_path / "a.parquet", schema=SCHEMA, on_bad_text="replace")
    assert [row["sections"] for row in found.rows] == [
        [{"content": "c\ufffd"}],
        [{"content": "\ufffd"}],
    ]
    assert found.replaced == {0: 1, 1: 1}
    assert len(read(tmp_path / "a.parquet", schema=SCHEMA).rejects) == 2


def test_strings_inside_lists_of_a_table_are_replaced(tmp_path, read):
    contents = pa.array([b"x", b"\xff\xff"]).view(pa.string())
    items = pa.StructArray.from_arrays([contents], ["content"])
    sections = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), items)
    pq.write_table(pa.table({"text": ["a", "b"], "sections": sections}), tmp_path / "a.parquet")
    found = read(tmp_path / "a.parquet", schema=SCHEMA, on_bad_text="replace")
    assert [row["sections"][0]["content"] for row in found.rows] == ["x", "\ufffd\ufffd"]
    assert found.replaced == {1: 2}


@pytest.mark.parametrize("ending", FORMATS)
def test_whole_records_are_replaced(ending, tmp_path, read):
    options = {"format": "object"} if ending == "object" else {}
    path = write(tmp_path, ending, b"a \xff b")
    found = read(path, schema=WHOLE, on_bad_text="replace", **options)
    assert [json.loads(row[WHOLE_RECORD]) for row in found.rows] == [{"text": "a \ufffd b"}]
    assert found.replaced == {0: 1}


def test_numbers_of_a_replaced_record_stay_as_they_are_written(tmp_path, read):
    (tmp_path / "a.jsonl").write_bytes(b'{"n": 1.00, "m": 12345678901234567890123, "t": "\\ud800"}')
    found = read(tmp_path / "a.jsonl", schema=WHOLE, on_bad_text="replace")
    assert found.rows[0][WHOLE_RECORD] == '{"n": 1.00, "m": 12345678901234567890123, "t": "\ufffd"}'


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_fields_that_are_kept_are_replaced_too(ending, tmp_path, read):
    path = write(tmp_path, ending, b"a \xff b")
    found = read(path, schema=TEXT, on_bad_text="replace", keep=("text",))
    assert found.metadata == [{"text": "a \ufffd b"}]


def test_texts_between_separators_are_replaced_each_for_itself(tmp_path, read):
    (tmp_path / "a.txt").write_bytes(b"one|\xff|  |three|\xff\xff")
    found = read(tmp_path / "a.txt", schema=TEXT, on_bad_text="replace", text_separator="|")
    assert [row["text"] for row in found.rows] == ["one", "\ufffd", "three", "\ufffd\ufffd"]
    assert found.replaced == {1: 1, 3: 2}
