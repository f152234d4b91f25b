from __future__ import annotations

import codecs
import gzip
import json
import lzma
import subprocess

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokmill.errors import UsageError
from tokmill.settings.schema import InputSettings
from tokmill.sources.file_kinds import check_encoding, check_kind
from tokmill.sources.files import discover
from tokmill.sources.utf8 import encodings_of

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
        ("a.txt", lzma.compress(LINES), "holds xz data, expected text: unpack it with xz -dc < "),
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
        ("a.jsonl", b"[1, 2]\n3\n"),
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
    with pytest.raises(UsageError, match=r"iconv -f GB18030 -t UTF-8 '.*a b.txt' > NEW_FILE$"):
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
KOREAN = (
    "고양이는 밤에 사냥을 합니다. 낮에는 창가에서 잠을 잡니다. 비가 오는 날에는 책장 위에 있습니다."
)
RUSSIAN = "Кошка охотится ночью, а днём спит на окне и ждёт птиц."
UKRAINIAN = "Кішка полює вночі, а вдень спить на вікні й чекає, доки її погодують."
GREEK = "η γάτα κυνηγά τη νύχτα και κοιμάται τη μέρα δίπλα στο παράθυρο"
HEBREW = "החתול צד בלילה, וביום הוא ישן ליד החלון ומחכה לציפורים"
ARABIC = "القط يصطاد في الليل، وينام في النهار قرب النافذة وينتظر الطيور"
THAI = "แมวล่าเหยื่อในเวลากลางคืน และนอนหลับในเวลากลางวันริมหน้าต่าง"
CZECH = "Kočka loví v noci. Ve dne spí u okna, čeká na ptáky a těší se, až přijdou její lidé."
POLISH = "Kot poluje w nocy. W dzień śpi przy oknie, czeka na ptaki i cieszy się, gdy ktoś wróci."
FRENCH = "Le chat chasse la nuit. Le jour, il dort près de la fenêtre où l'été a été évoqué."
TURKISH = "Kedi geceleri avlanır, gündüzleri pencerenin önünde uyur ve öğlen kuşları bekler."


@pytest.mark.parametrize(
    ("text", "codec", "name"),
    [
        (CHINESE, "gbk", "GB18030"),
        (f"title: {CHINESE}", "gb18030", "GB18030"),
        (TAIWAN, "big5", "BIG5-HKSCS"),
        (JAPANESE, "shift_jis", "CP932"),
        (JAPANESE, "euc_jp", "EUC-JP"),
        (JAPANESE, "iso2022_jp", "ISO-2022-JP"),
        (KOREAN, "euc_kr", "CP949"),
        (RUSSIAN, "cp1251", "CP1251"),
        (RUSSIAN, "koi8_r", "KOI8-R"),
        (RUSSIAN, "iso8859_5", "ISO-8859-5"),
        (RUSSIAN, "cp866", "CP866"),
        (UKRAINIAN, "cp1251", "CP1251"),
        (GREEK, "iso8859_7", "CP1253"),
        (HEBREW, "cp1255", "CP1255"),
        (ARABIC, "cp1256", "CP1256"),
        (THAI, "tis_620", "CP874"),
        (CHINESE, "utf_16", "UTF-16"),
        (CHINESE, "utf_32", "UTF-32"),
        ("hello there", "utf_16_le", "UTF-16LE"),
        ("hello there", "utf_16_be", "UTF-16BE"),
        ("hello there", "utf_32_be", "UTF-32BE"),
    ],
)
def test_an_encoding_that_is_certain_is_named_alone_and_its_command_works(
    text, codec, name, tmp_path
):
    """Every file of the folder is in this encoding; the last character of one is cut off."""
    path = tmp_path / "a.txt"
    path.write_bytes(text.encode(codec))
    assert encodings_of(path.read_bytes()).names == (name,)
    with pytest.raises(UsageError, match=rf"looks like {name} \('.*'\), expected UTF-8") as caught:
        checked(path)
    command = str(caught.value).partition("convert it with ")[2]
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)
    converted = (tmp_path / "NEW_FILE").read_bytes().removeprefix(codecs.BOM_UTF8)
    assert converted.decode() == text


@pytest.mark.parametrize(
    ("text", "codec", "name"),
    [
        (UKRAINIAN, "koi8_u", "KOI8-U"),
        (CZECH, "cp1250", "CP1250"),
        (CZECH, "iso8859_2", "ISO-8859-2"),
        (POLISH, "cp1250", "CP1250"),
        (FRENCH, "cp1252", "CP1252"),
        (FRENCH, "cp850", "CP850"),
        (TURKISH, "cp1254", "CP1254"),
    ],
)
def test_an_encoding_that_is_not_certain_is_unknown_and_some_are_named_to_try(
    text, codec, name, tmp_path
):
    (tmp_path / "a.txt").write_bytes(text.encode(codec))
    with pytest.raises(UsageError, match=r"encoding unknown, perhaps .* NEW_FILE reads wrong") as e:
        checked(tmp_path)
    assert name in str(e.value)
    names = encodings_of(text.encode(codec)).names
    assert name in names
    assert 2 <= len(names) <= 3


@pytest.mark.parametrize("data", [b"\xff\xfe", b"\xff\xff\0\xfe\x9d\x81" * 9, bytes(range(256))])
def test_bytes_that_are_text_in_no_encoding_are_left_to_their_rejects(data, tmp_path):
    assert encodings_of(data) is None or encodings_of(data).names


def test_a_character_that_is_cut_off_at_the_end_does_not_matter():
    assert encodings_of(CHINESE.encode("gbk")[:-1]).names == ("GB18030",)


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
    assert encodings_of(data) is None
