"""Find bytes that are not UTF-8, and guess the encoding that they are in.

Engines do not check their input, so text that is not UTF-8 must be found here.
"""

from __future__ import annotations

import codecs
import re
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable

Bytes = bytes | bytearray
_BOMS = ((b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"))
_FEWEST_BAD = 2
_ASCII = re.compile("[\x00-\x7f]+")
_ENCODINGS = (["gb18030", "big5", "cp932", "cp1252"], ["cp949", "euc_jp", "cp1251", "koi8_r"])
"""The encodings that are known by their letters; the common ones are tried first, by themselves."""
_ICONV = {"cp932": "SHIFT_JIS", "cp1252": "WINDOWS-1252", "cp949": "UHC"}
"""Names that iconv does not share with Python."""
_LOOKED_AT = 4096


def is_utf8(data: Bytes, start: int, stop: int) -> bool:
    """Return whether `data[start:stop]` is UTF-8; without a copy, 17 GB/s for ASCII on one core."""
    offsets = pa.py_buffer(np.array([start, stop], dtype=np.int64))
    text = pa.Array.from_buffers(pa.large_utf8(), 1, [None, offsets, pa.py_buffer(data)])
    return is_valid(text)


def is_valid(array: pa.Array) -> bool:
    """Return whether an array is valid for Arrow, which includes that its text is UTF-8."""
    try:
        array.validate(full=True)
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return False
    return True


def find_bad(n: int, check: Callable[[int, int], int | None]) -> list[int]:
    """Return which of `n` items are bad, in order.

    `check(first, last)` returns None if a range of items is good, else one that may be the bad one,
    or -1. Cost: one call if all are good; for each bad one two where it is named, else a bisection.
    """
    bad: list[int] = []
    pending = [(0, n)] if n else []
    while pending:
        first, last = pending.pop()
        guess = check(first, last)
        if guess is None:
            continue
        if last - first == 1:
            bad.append(first)
            continue
        cuts = [guess, guess + 1] if first <= guess < last else [(first + last) // 2]
        ranges = pairwise([first, *cuts, last])
        pending += reversed([(start, stop) for start, stop in ranges if start < stop])
    return bad


def utf8_message(data: bytes) -> str:
    """Return where a record is not UTF-8, and which encoding it may be in."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        place = f"byte 0x{data[error.start]:02x} at byte {error.start} of the record"
        encoding = encoding_of(data)
        return f"{place}: {error.reason}" + (f"; looks like {encoding}" if encoding else "")
    return "not UTF-8"


def encoding_of(head: bytes) -> str:
    """Return the encoding of the first bytes of a file, as iconv names it; '' for UTF-8.

    '' also if only some of the bytes are wrong: then the file is UTF-8 with broken records.
    """
    for bom, name in _BOMS:
        if head.startswith(bom):
            return name
    if wide := _without_bom(head[:_LOOKED_AT]):
        return wide
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(head)
    n_bad = text.count("\ufffd")
    n_good = len(_ASCII.sub("", text)) - n_bad
    if n_bad < _FEWEST_BAD or n_bad * 2 <= n_good or _mostly_good(head):
        return ""
    return _by_letters(head)


def _mostly_good(head: bytes) -> bool:
    """Return whether most lines are UTF-8; the other lines are broken records then."""
    lines = head.split(b"\n")
    bad = sum(not is_utf8(line, 0, len(line)) for line in lines)
    return len(lines) > 1 and 2 * bad <= len(lines)


def _without_bom(head: bytes) -> str:
    """Return UTF-16LE or UTF-16BE if every second byte is mostly zero, else ''."""
    even, odd = head[::2].count(0), head[1::2].count(0)
    if max(even, odd) * 4 < len(head) or not head:
        return ""
    if even * 4 < odd:
        return "UTF-16LE"
    return "UTF-16BE" if odd * 4 < even else ""


def _by_letters(head: bytes) -> str:
    """Return the encoding that makes the bytes look most like text; the common ones come first."""
    from charset_normalizer import from_bytes  # takes 40 ms, and few files need it

    for encodings in _ENCODINGS:
        for n_cut in range(4):  # the last character may be incomplete
            match = from_bytes(head[: len(head) - n_cut], cp_isolation=encodings).best()
            if match is not None:
                name = match.encoding.replace("_", "-").upper()
                return _ICONV.get(match.encoding, name)
    return "WINDOWS-1252"
