"""Find bytes that are not UTF-8, and guess the encoding that they are in.

Engines do not check their input, so text that is not UTF-8 must be found here.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tokmill.errors import UsageError
from tokmill.sources.bad_text import ADVICE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Bytes = bytes | bytearray

_FEWEST_BAD = 2
_ASCII = re.compile("[\x00-\x7f]+")

_WIDE = {
    **{"utf-16": "UTF-16", "utf-16-le": "UTF-16LE", "utf-16-be": "UTF-16BE"},
    **{"utf-32": "UTF-32", "utf-32-le": "UTF-32LE", "utf-32-be": "UTF-32BE"},
}
_NARROW = {
    **{"gb18030": "GB18030", "big5hkscs": "BIG5-HKSCS", "cp932": "CP932", "euc-jis-2004": "EUC-JP"},
    **{"iso2022-jp-2": "ISO-2022-JP", "cp949": "CP949"},
    **{f"cp{number}": f"CP{number}" for number in (*range(1250, 1259), 874, 866, 850)},
    **{f"iso8859-{number}": f"ISO-8859-{number}" for number in (1, 2, 5, 6, 7, 8, 9, 15)},
    **{"koi8-r": "KOI8-R", "koi8-u": "KOI8-U", "mac-roman": "MACINTOSH"},
}
"""The encodings that corpora come in: Python's names, and those of iconv. Of several in which some
bytes are the same text, the first one is named."""

_NONE = "ascii"
"""What stands for no encoding: bytes that are asked about are no ASCII, or hold zeros."""

_LEAST_CONFIDENCE, _MARGIN = 0.25, 1.5
"""An encoding is named alone if its confidence is so high, and so many times that of the next one
in which the bytes are another text."""

_MOST_NAMED = 3
_SHOWN = 20
"""Characters of a sample."""


@dataclass(frozen=True, slots=True)
class Encodings:
    """The encodings that bytes may be in, as iconv names them, the most likely first.

    One alone is certain enough to be named. `sample`: the first characters that are not ASCII, and
    some behind them, as the first encoding reads them.
    """

    names: tuple[str, ...]
    sample: str

    @property
    def is_wide(self) -> bool:
        """Return whether a character takes two or four bytes, of which many are zeros."""
        return self.names[0] in _WIDE.values()

    def __str__(self) -> str:
        """Return what a message says of the bytes."""
        first, *others = self.names
        if not others:
            return f"looks like {first} ({self.sample})"
        return f"encoding unknown, perhaps {first} ({self.sample}) or {' or '.join(others)}"


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
    """Return where a record is not UTF-8, and which encoding it may be in, or what to do."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        place = f"byte 0x{data[error.start]:02x} at byte {error.start} of the record"
        encodings = encodings_of(data)
        found = f"{place}: {error.reason}" + (f"; {encodings}" if encodings else "")
        is_sure = encodings is not None and len(encodings.names) == 1
        return found if is_sure else f"{found}{ADVICE}"
    return "not UTF-8"


def encodings_of(head: bytes) -> Encodings | None:
    """Return the encodings that the first bytes of a file may be in; None for UTF-8.

    None also if only some of the bytes are wrong: then the file is UTF-8 with broken records.
    """
    may_be_wide = b"\0" in head or head.startswith((b"\xff\xfe", b"\xfe\xff"))
    if may_be_wide and (wide := _likely(head, _WIDE)):
        return wide
    if b"\x1b$" in head:  # the escape by which ISO-2022-JP, which is ASCII, begins Japanese
        return _likely(head, _NARROW)
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(head)
    n_bad = text.count("\ufffd")
    n_good = len(_ASCII.sub("", text)) - n_bad
    if n_bad < _FEWEST_BAD or n_bad * 2 <= n_good or _mostly_good(head):
        return None
    return _likely(head, _NARROW)


def _mostly_good(head: bytes) -> bool:
    """Return whether most lines are UTF-8; the other lines are broken records then."""
    lines = [line for line in head.split(b"\n") if line]
    bad = sum(not is_utf8(line, 0, len(line)) for line in lines)
    return len(lines) > 1 and 2 * bad <= len(lines)


def _likely(head: bytes, encodings: Mapping[str, str]) -> Encodings | None:
    """Return those of some encodings in which bytes look most like text; None if in no one."""
    try:
        from chardet import detect_all  # takes 35 ms, and few files need it
    except ImportError:
        raise UsageError(
            "a text is not UTF-8, and the package chardet, which tells its encoding, is missing: "
            "pip install 'chardet>=7.7'"
        ) from None
    by_text: dict[str, list[str]] = {}
    confidences: dict[str, float] = {}
    guesses = detect_all(
        head,
        True,
        compat_names=False,
        include_encodings=[*encodings, _NONE],
        no_match_encoding=_NONE,
        empty_input_encoding=_NONE,
    )
    for guess in guesses:
        name = (guess["encoding"] or "").replace("_", "-")
        if name in encodings:
            text = head.decode(name, "ignore")  # the last character may be incomplete
            by_text.setdefault(text, []).append(name)
            confidences.setdefault(text, guess["confidence"])
    if not by_text:
        return None
    texts = sorted(by_text, key=lambda text: -confidences[text])
    order = list(encodings)
    names = [encodings[min(by_text[text], key=order.index)] for text in texts[:_MOST_NAMED]]
    best = confidences[texts[0]]
    next_best = confidences[texts[1]] if len(texts) > 1 else 0.0
    if best >= max(_LEAST_CONFIDENCE, _MARGIN * next_best):
        names = names[:1]
    return Encodings(tuple(names), _sample_of(texts[0]))


def _sample_of(text: str) -> str:
    """Return the first characters of a text that are not ASCII, and some behind them, quoted."""
    start = re.search("[^\x00-\x7f]", text)
    first = start.start() if start else 0
    return repr(text[first : first + _SHOWN])
