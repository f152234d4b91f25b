from __future__ import annotations

import numpy as np
import pytest

from tokmill.sources.blocks import not_utf8
from tokmill.sources.utf8 import encoding_of, is_utf8, utf8_message

CHINESE = "夜间捕食，白天睡觉。它们都是这样的动物。"
TAIWAN = "夜間捕食，白天睡覺。牠們都是這樣的動物，獨來獨往。台灣的貓也是如此，主人回家時才會醒來。"
JAPANESE = "夜に狩りをして、昼は眠ります。ねこはみんなそうです。"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", True),
        (b"a\x00", True),
        ("é一😀".encode(), True),
        (b"\xff", False),
        (b"\xc3", False),
        (b"\xc0\x80", False),
        (b"\xed\xa0\x80", False),
        (b"\xf4\x90\x80\x80", False),
    ],
)
def test_utf8_is_what_python_decodes(data, expected):
    assert is_utf8(data, 0, len(data)) is expected
    padded = bytearray(b"\xff" + data + b"\xff")
    assert is_utf8(padded, 1, 1 + len(data)) is expected


def test_bad_spans_are_found_among_good_ones():
    data = b"a\n\xff\nb\nc\xc3\n"
    starts, stops = np.array([0, 2, 4, 6]), np.array([1, 3, 5, 8])
    assert list(not_utf8(data, starts, stops)) == [1, 3]
    assert not_utf8(data, starts[[0, 2]], stops[[0, 2]]) == {}
    assert not_utf8(data, starts[:0], stops[:0]) == {}


def test_the_message_says_where():
    assert utf8_message(b"ab\xff") == "byte 0xff at byte 2 of the record: invalid start byte"


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
