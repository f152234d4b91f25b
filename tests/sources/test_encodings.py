from __future__ import annotations

import pytest

from tokmill.sources.encodings import encoding_of

CHINESE = "夜间捕食，白天睡觉。它们都是这样的动物。"
TAIWAN = "夜間捕食，白天睡覺。牠們都是這樣的動物，獨來獨往。"
JAPANESE = "夜に狩りをして、昼は眠ります。ねこはみんなそうです。"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (CHINESE.encode("gbk"), "GBK"),
        (CHINESE.encode("gbk")[:-1], "GBK"),
        (f"title: {CHINESE}".encode("gb18030"), "GBK"),
        (TAIWAN.encode("big5"), "BIG5"),
        (JAPANESE.encode("shift_jis"), "SHIFT_JIS"),
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
