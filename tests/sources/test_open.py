from __future__ import annotations

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokmill.config import InputSettings
from tokmill.sources.files import Slice, SourceFile, discover
from tokmill.sources.open import open_slice, probe

SECTIONS = pa.list_(pa.struct([("title", pa.string())]))


def probed(*paths, **options):
    settings = InputSettings(paths=tuple(map(str, paths)), **options)
    return probe(discover(settings).files, settings)


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_keys_of_json_come_in_the_order_seen(name, tmp_path):
    records = [
        {"title": None},
        {"sections": [{"title": "a"}], "title": "b"},
        {"n": 1, "mixed": 1},
        {"mixed": "a", "null": None},
    ]
    lines = [json.dumps(record) for record in records]
    text = "null\n" + "\n".join(lines) if name == "a.jsonl" else f"[{','.join(lines)}]"
    (tmp_path / name).write_text(text)
    found = probed(tmp_path / name)
    assert list(found.items()) == [
        ("title", pa.string()),
        ("sections", SECTIONS),
        ("n", pa.int64()),
        ("mixed", pa.int64()),
        ("null", pa.null()),
    ]


def test_the_first_file_with_records_answers(tmp_path):
    (tmp_path / "a.jsonl").touch()
    (tmp_path / "b.jsonl").write_text("\n\n")
    (tmp_path / "c.csv").write_text("x,y\n1,2\n")
    assert probed(tmp_path) == {"x": pa.string(), "y": pa.string()}
    assert probed(tmp_path / "a.jsonl") == {}


def test_other_formats_answer_from_what_they_declare(tmp_path):
    table = pa.table({"a": ["x"], "n": [1]})
    pq.write_table(table, tmp_path / "a.parquet")
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    (tmp_path / "a.txt").write_text("x")
    assert probed(tmp_path / "a.parquet") == {"a": pa.string(), "n": pa.int64()}
    assert probed(tmp_path / "a.arrow") == {"a": pa.string(), "n": pa.int64()}
    assert probed(tmp_path / "a.txt") == {"text": pa.string()}


@pytest.mark.parametrize(
    ("data_format", "data", "rows"),
    [
        ("jsonl", b'{"a": "1"}\n{"a": "2"}', ["1", "2"]),
        ("array", b'[{"a": "1"},{"a": "2"}]', ["1", "2"]),
        ("csv", b"a,b\n1,x\n2,y\n", ["1", "2"]),
    ],
)
def test_standard_input_is_probed_and_still_read_whole(data_format, data, rows, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    settings = InputSettings(paths=("-",), format=data_format)
    (file,) = discover(settings).files
    assert probe([file], settings)["a"] == pa.string()
    schema = pa.schema([("a", pa.string())])
    with open_slice(Slice(file, 0, -1, 0), settings, schema, 1 << 20) as reader:
        found = [row["a"] for block in reader.blocks() for row in block.parse().batch.to_pylist()]
    assert found == rows


def test_only_good_lines_are_probed(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"a": "\xff"}\n{"b": "x"\n{"c": "y"}\n')
    assert probed(tmp_path / "a.jsonl") == {"c": pa.string()}


def test_numbers_that_no_column_holds_have_no_type(tmp_path):
    (tmp_path / "a.jsonl").write_text(f'{{"n": {10**30}}}')
    assert probed(tmp_path / "a.jsonl") == {"n": pa.null()}


def test_the_weight_of_a_block_is_its_bytes(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"{}\n" * 10)
    file = SourceFile((tmp_path / "a.jsonl").as_posix(), "jsonl", "", 30, 0, "")
    settings = InputSettings()
    with open_slice(Slice(file, 0, -1, 30), settings, pa.schema([]), 9) as reader:
        blocks = list(reader.blocks())
    assert [block.n_bytes for block in blocks] == [9, 9, 9, 3]
    assert sum(block.input_bytes for block in blocks) == 30
