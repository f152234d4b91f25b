from __future__ import annotations

import io
import json

import pyarrow as pa
import pytest

from tokmill.rendering.fields import FieldSample
from tokmill.settings.schema import InputSettings
from tokmill.sources.files import Slice, discover
from tokmill.sources.first_records import first_of_file
from tokmill.sources.formats import open_slice


def sampled(*paths, **options):
    settings = InputSettings(paths=tuple(map(str, paths)), **options)
    sample = FieldSample(("sections",))
    for file in discover(settings).files:
        for record in first_of_file(file, settings, 100, 16 << 20, whole=False):
            sample.add(record)
    return sample


def whole(file, settings):
    return first_of_file(file, settings, 100, 16 << 20, whole=True)


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_keys_of_json_come_in_the_order_seen(name, tmp_path):
    records = [
        {"title": None},
        {"sections": [{"title": "a b"}], "title": "b c"},
        {"n": 1, "mixed": 1},
        {"mixed": "a b", "null": None},
    ]
    lines = [json.dumps(record) for record in records]
    text = "null\n" + "\n".join(lines) if name == "a.jsonl" else f"[{','.join(lines)}]"
    (tmp_path / name).write_text(text)
    sample = sampled(tmp_path / name)
    assert list(sample.keys) == ["title", "sections", "n", "mixed", "null"]
    assert list(sample.fields) == ["title", "sections[].title", "n", "mixed", "null"]
    assert sample.n_records == 4
    assert sample.string_keys == {"title", "mixed"}


@pytest.mark.parametrize(
    ("data_format", "data", "rows"),
    [
        ("jsonl", b'{"a": "1"}\n{"a": "2"}', ["1", "2"]),
        ("array", b'[{"a": "1"},{"a": "2"}]', ["1", "2"]),
        ("csv", b"a,b\n1,x\n2,y\n", ["1", "2"]),
    ],
)
def test_standard_input_is_sampled_and_still_read_whole(data_format, data, rows, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    settings = InputSettings(paths=("-",), format=data_format)
    (file,) = discover(settings).files
    assert "a" in first_of_file(file, settings, 100, 1 << 20, whole=False)[0]
    assert [record["a"] for record in whole(file, settings)] == rows
    schema = pa.schema([("a", pa.string())])
    with open_slice(Slice(file, 0, -1, 0), settings, schema, 1 << 20) as reader:
        found = [row["a"] for block in reader.blocks() for row in block.parse().batch.to_pylist()]
    assert found == rows


def test_a_list_in_a_string_of_json_is_looked_into(tmp_path):
    cell = json.dumps([{"title": "a", "content": "b c"}]).replace('"', '""')
    (tmp_path / "a.csv").write_text(f'title,sections\nx,"{cell}"\n')
    assert list(sampled(tmp_path / "a.csv").fields) == [
        "title",
        "sections[].title",
        "sections[].content",
    ]


@pytest.mark.parametrize("empty", ['""', "null", "[]"])
def test_more_records_are_looked_at_as_long_as_a_key_has_held_nothing(tmp_path, empty):
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"a": "x", "b": {empty}}}\n' * 120 + '{"a": "x", "b": "the text"}\n' * 200)
    assert sampled(path).n_records == 220
    assert sampled(path).fields["b"].n_bytes == 100 * len("the text")
    path.write_text(f'{{"a": "x", "b": {empty}}}\n' * 2000)
    assert sampled(path).n_records == 1000
