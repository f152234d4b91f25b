from __future__ import annotations

import gzip
import json
import lzma

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokmill.errors import UsageError
from tokmill.settings.schema import InputSettings
from tokmill.sources.files import discover
from tokmill.sources.first_records import check_encoding, check_kind

LINES = b'{"text": "one two"}\n' * 3


def parquet() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"text": ["one two"]}), sink)
    return sink.getvalue().to_pybytes()


def checked(*paths, **options):
    settings = InputSettings(paths=tuple(map(str, paths)), **options)
    files = discover(settings).files
    for file in files:
        check_kind(file, settings)
    check_encoding(files)


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        (
            "a.jsonl",
            gzip.compress(LINES, mtime=0),
            "holds gzip data, expected jsonl: add .gz to its name",
        ),
        ("a.txt", lzma.compress(LINES), "holds xz data, expected text: unpack it with xz -dk"),
        (
            "a.json",
            parquet(),
            "holds Parquet, expected jsonl: rename it to end in .parquet, or use --format=parquet",
        ),
        ("a.csv", b"PK\3\4" + bytes(99), "holds a zip archive (or .xlsx, .docx), expected csv: "),
        ("a.txt", b"%PDF-1.4", "holds a PDF, expected text: extract its text first"),
        ("a.jsonl.gz", LINES, "holds text, expected gz data: remove the last ending of its name"),
        ("a.parquet", LINES, "holds JSON, expected parquet: rename it to end in .jsonl or .json"),
        (
            "a.jsonl",
            b'[\n {"text": "one"}]',
            "holds one JSON array, expected an object on each line: rename it to end in .json, or "
            "use --format=array",
        ),
        (
            "a.csv",
            b"title;text\na;b\n",
            "the header has one column, 'title;text': expected columns separated by ',': use "
            "--csv-delimiter=';'",
        ),
        ("a.csv", b"title\ttext\na\tb\n", "use --csv-delimiter='\\t'"),
        ("a.tsv", b"title|text\na|b\n", "expected columns separated by '\\t': use"),
        (
            "a b.txt",
            "猫在夜里捕食".encode("gbk"),
            "looks like GB18030, expected UTF-8: convert it with ",
        ),
        ("a.jsonl", "猫在夜里".encode("utf-16"), "iconv -f UTF-16 -t UTF-8 "),
    ],
)
def test_a_file_of_another_kind_is_named_with_what_to_do(name, data, expected, tmp_path):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UsageError) as caught:
        checked(tmp_path / name)
    assert str(caught.value).startswith(f"{(tmp_path / name).as_posix()}: ")
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.jsonl", LINES),
        ("a.jsonl", b""),
        ("a.jsonl", b"[1, 2]\n[3]\n"),
        ("a.jsonl.gz", gzip.compress(LINES, mtime=0)),
        ("a.jsonl.gz", b"broken"),
        ("a.parquet", parquet()),
        ("a.parquet", b"broken"),
        ("a.csv", b"text\none two; three\n"),
        ("a.txt", "one \u732b".encode() + b"\xff"),
    ],
)
def test_what_its_name_says_passes_broken_or_not(name, data, tmp_path):
    (tmp_path / name).write_bytes(data)
    checked(tmp_path / name)


def test_the_command_to_convert_is_quoted_for_the_shell(tmp_path):
    (tmp_path / "a b.txt").write_bytes("猫在夜里捕食".encode("gbk"))
    with pytest.raises(UsageError, match=r"iconv -f GB18030 -t UTF-8 '.*a b.txt' > NEW_FILE"):
        checked(tmp_path / "a b.txt")


def test_one_file_of_many_in_another_encoding_is_left_to_its_rejects(tmp_path):
    (tmp_path / "a.txt").write_bytes("猫在夜里捕食".encode("gbk"))
    (tmp_path / "b.txt").write_bytes("猫在夜里捕食".encode())
    checked(tmp_path)


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_a_binary_file_is_called_binary(name, tmp_path):
    (tmp_path / name).write_bytes(bytes(range(256)) * 4)
    with pytest.raises(UsageError, match="holds binary data, expected"):
        checked(tmp_path)


def test_a_forced_format_is_believed(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps([{"text": "one two"}]))
    checked(tmp_path / "a.jsonl", format="array")
