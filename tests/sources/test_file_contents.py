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
from tokmill.sources.utf8 import encoding_of

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
        ("a.txt", lzma.compress(LINES), "holds xz data, expected text: unpack it with xz -dk"),
        ("a.csv", b"PK\3\4" + bytes(99), "holds a zip archive (or .xlsx, .docx), expected csv: "),
        ("a.txt", b"%PDF-1.4", "holds a PDF, expected text: extract its text first"),
        ("a.jsonl.gz", LINES, "holds text, expected gz data: remove the last ending of its name"),
        ("a.tsv", b"title|text\na|b\n", "expected columns separated by '\\t': use"),
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
    (tmp_path / "a b.txt").write_bytes(CHINESE.encode("gbk"))
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


# Encodings


CHINESE = "夜间捕食，白天睡觉。它们都是这样的动物。"
TAIWAN = "夜間捕食，白天睡覺。牠們都是這樣的動物，獨來獨往。台灣的貓也是如此，主人回家時才會醒來。"
JAPANESE = (
    "夜に狩りをして、昼は眠ります。ねこはみんなそうです。台所の窓から外を見て、鳥を待ちます。"
    "雨の日には本棚の上で丸くなり、家の人が帰るまで動きません。"
)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (CHINESE.encode("gbk"), "GB18030"),
        (CHINESE.encode("gbk")[:-1], "GB18030"),
        (f"title: {CHINESE}".encode("gb18030"), "GB18030"),
        (TAIWAN.encode("big5"), "BIG5"),
        (JAPANESE.encode("shift_jis"), "SHIFT_JIS"),
        ("Это проверка кодировки текста".encode("cp1251"), "CP1251"),
        ("Café déjà vu, à bientôt".encode("latin-1"), "WINDOWS-1252"),
        (CHINESE.encode("utf-16"), "UTF-16"),
        (CHINESE.encode("utf-16-be").join([b"\xfe\xff", b""]), "UTF-16"),
        ("hello there".encode("utf-16-le"), "UTF-16LE"),
        ("hello there".encode("utf-16-be"), "UTF-16BE"),
    ],
)
def test_an_encoding_is_known_by_its_letters(data, expected):
    assert encoding_of(data) == expected


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello",
        CHINESE.encode(),
        CHINESE.encode()[:-1],
        "Café déjà vu".encode(),
        b"\xef\xbb\xbf" + CHINESE.encode(),
        b"a stray \xff in a text",
        f"{CHINESE} a broken \udcff\udcfe word".encode("utf-8", "surrogateescape"),
        f"{CHINESE}\nbroken: ".encode() + CHINESE.encode("gbk") + b"\n" + CHINESE.encode(),
        b"\0" * 9,
    ],
)
def test_utf_8_with_broken_records_is_utf_8(data):
    assert encoding_of(data) == ""
