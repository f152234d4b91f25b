"""gzip of digits, commas and line ends: every reader of gzip returns the text."""

from __future__ import annotations

import gzip
import io
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.trainers.layouts.digits_gzip import member


@given(st.text("0123456789,\n", max_size=300))
def test_the_text_is_read_back(text: str) -> None:
    assert gzip.decompress(member(text.encode())) == text.encode()


@pytest.mark.parametrize("character", "0123456789,\n")
@pytest.mark.parametrize("n", [1, 2, 3])
def test_each_character_has_a_code_of_its_own(character: str, n: int) -> None:
    assert gzip.decompress(member(character.encode() * n)) == character.encode() * n


def test_members_one_after_the_other_are_one_file() -> None:
    data = member(b"0,18\n") + member(b"") + member(b"18,319\n")
    with gzip.open(io.BytesIO(data), "rt") as file:
        assert file.readlines() == ["0,18\n", "18,319\n"]


def test_a_character_is_half_a_byte() -> None:
    text = b"1234567,1234999\n" * 10_000
    assert len(member(text)) <= len(text) // 2 + 40


def test_a_member_has_no_time_and_ends_with_checksum_and_length() -> None:
    text = b"1325,1391\n"
    data = member(text)
    assert data[:10] == b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
    assert struct.unpack("<II", data[-8:]) == (zlib.crc32(text), len(text))
    assert member(text) == data


def test_the_deflate_stream_ends_at_its_last_byte() -> None:
    for n in range(8):
        data = member(b"1" * n)
        reader = zlib.decompressobj(-zlib.MAX_WBITS)
        assert reader.decompress(data[10:-8]) == b"1" * n
        assert reader.eof
        assert reader.unused_data == b""


def test_a_damaged_member_is_noticed() -> None:
    data = bytearray(member(b"10,20\n20,30\n"))
    data[-12] ^= 0x10
    with pytest.raises((gzip.BadGzipFile, zlib.error)):
        gzip.decompress(bytes(data))
