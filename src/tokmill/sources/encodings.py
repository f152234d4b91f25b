"""Guesses the encoding of text that is not UTF-8, to say how it is converted."""

from __future__ import annotations

import codecs
import re

_BOMS = ((b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"))
_FEWEST_BAD = 2
_ASCII = re.compile("[\x00-\x7f]+")
_GB2312_SHARE = 0.9
_KANA = re.compile("[\u3040-\u30ff]")
_LOOKED_AT = 4096


def encoding_of(head: bytes) -> str:
    """Return the encoding of the first bytes of a file by the name of iconv; '' for UTF-8.

    Also where only some of the bytes are wrong: then the file is UTF-8 with broken records.
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
    """Return whether most lines are UTF-8, so that the others are broken records."""
    lines = head.split(b"\n")
    bad = sum(not _decodes(line, "utf-8") for line in lines)
    return len(lines) > 1 and 2 * bad <= len(lines)


def _without_bom(head: bytes) -> str:
    """Return UTF-16LE or UTF-16BE if the bytes are ASCII with a zero between any two."""
    even, odd = head[::2].count(0), head[1::2].count(0)
    if max(even, odd) * 4 < len(head) or not head:
        return ""
    if even * 4 < odd:
        return "UTF-16LE"
    return "UTF-16BE" if odd * 4 < even else ""


def _by_letters(head: bytes) -> str:
    text = codecs.getincrementaldecoder("gb18030")("replace").decode(head)
    high = [character for character in text if not character.isascii()]
    common = sum(_encodes(character, "gb2312") for character in high)
    if high and common >= _GB2312_SHARE * len(high):
        return "GBK"
    if _decodes(head, "shift_jis") and _KANA.search(head.decode("shift_jis", "replace")):
        return "SHIFT_JIS"
    return "BIG5" if _decodes(head, "big5") else "WINDOWS-1252"


def _encodes(character: str, encoding: str) -> bool:
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def _decodes(data: bytes, encoding: str) -> bool:
    """Return whether bytes are text in an encoding; a character at the end may be cut."""
    try:
        codecs.getincrementaldecoder(encoding)().decode(data)
    except UnicodeDecodeError:
        return False
    return True
