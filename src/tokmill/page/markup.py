"""Text as HTML: escaped, with characters that a browser would not show made visible."""

from __future__ import annotations

import re
import unicodedata
from html import escape

from tokmill.words.printable import printable

_EDGES = {"\n": "nl", "\t": "tab"}
_ODD = re.compile(
    "(?P<byte>[\udc80-\udcff])"
    "|(?P<control>[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f])"
    "|(?P<unseen>[\r\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff])"
)
"""Characters that HTML cannot hold or a browser would not show."""


def plain(text: str) -> str:
    """Return text escaped for HTML; paths may hold bytes that are not Unicode."""
    return escape(text.encode("utf-8", "backslashreplace").decode())


def label(text: str, most: int = 0) -> str:
    """Return text escaped for HTML, on one line and without characters that change others.

    `most`: columns of a terminal to which it is shortened in the middle; 0: not at all.
    """
    return escape(shortened(text, most) if most else printable(text))


def shortened(text: str, most: int) -> str:
    """Return text made printable, its middle replaced by `…` where it has over `most` columns."""
    if len(text) > 4 * most:  # a title may have megabytes
        text = f"{text[: 2 * most]}{text[-2 * most :]}"
    text = printable(text)
    if _columns(text) <= most:
        return text
    tail = _first(text[::-1], most * 2 // 3)[::-1]  # the end of a path says most
    return f"{_first(text, most - 1 - _columns(tail))}…{tail}"


def _first(text: str, most: int) -> str:
    n_columns = 0
    for i, character in enumerate(text):
        n_columns += _columns(character)
        if n_columns > most:
            return text[:i]
    return text


def _columns(text: str) -> int:
    return sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


def content(text: str, *, is_edge: bool = False) -> str:
    """Return text of a record as HTML; of `is_edge`, white space is marked."""
    if not is_edge:
        return _ODD.sub(_odd, escape(text))
    return "".join(f'<span class="{_EDGES.get(c, "sp")}">{content(c)}</span>' for c in text)


def _odd(found: re.Match[str]) -> str:
    number = ord(found[0])
    if found["byte"]:
        return f'<span class="x">\\x{number - 0xDC00:02x}</span>'
    if found["control"]:
        return f'<span class="x">\\x{number:02x}</span>'
    return f'<bdi class="o" data-code="U+{number:04X}">&#{number};</bdi>'
