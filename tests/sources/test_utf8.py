from __future__ import annotations

import numpy as np
import pytest

from tokmill.sources.utf8 import invalid_spans, is_utf8, utf8_message


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
    assert invalid_spans(data, starts, stops) == [1, 3]
    assert invalid_spans(data, starts[[0, 2]], stops[[0, 2]]) == []
    assert invalid_spans(data, starts[:0], stops[:0]) == []


def test_the_message_says_where():
    assert utf8_message(b"ab\xff") == "byte 0xff at byte 2 of the record: invalid start byte"
