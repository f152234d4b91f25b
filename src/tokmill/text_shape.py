"""Whether a string is text or a label of a record, and its script, judged by its characters."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

_LONGEST_JSON = 1 << 20
_LONGEST_DATE = 48
_LONGEST_WORD = 3
_LONGEST_LOOKED_AT = 1000

_NO_BLANK = re.compile(r"[!-~]+")
_MARKED = re.compile(r"[0-9/\\_@:=.+-]")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_DATE = re.compile(
    r"(?:[0-9T Z:,./+\-年月日时分秒]|"
    r"(?:mon|tue|wed|thu|fri|sat|sun|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*+|"
    r"gmt|utc|am|pm|st|nd|rd|th)+",
    re.IGNORECASE,
)

_HAN_AND_KANA = re.compile(
    "[\u3005\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\uff66-\uff9f\U00020000-\U0003ffff]"
)


def count_letters(value: str) -> tuple[int, int]:
    """Return the letters among the first 1,000 characters, and how many are Han or Kana."""
    head = value[:_LONGEST_LOOKED_AT]
    if head.isascii():
        return sum(map(str.isalpha, head)), 0
    return sum(map(str.isalpha, head)), len(_HAN_AND_KANA.findall(head))


def is_text(value: str) -> bool:
    """Return whether a string is text, and not a URL, an id, a number, a date or a file name.

    A string of ASCII without a blank is text only if it is a word. JSON in a string is metadata.
    """
    if len(value) <= _LONGEST_WORD and value.isascii():
        return False
    if _NO_BLANK.fullmatch(value):
        return not _MARKED.search(value)
    if len(value) <= _LONGEST_DATE and _DATE.fullmatch(value):
        return False
    if _URL.fullmatch(value):
        return False
    return isinstance(json_in(value), str)


def json_in(value: Any) -> Any:
    """Return the list or object that a JSON string holds; any other value unchanged."""
    if not isinstance(value, str) or len(value) > _LONGEST_JSON:
        return value
    if value[:1] + value[-1:] not in ("[]", "{}"):
        return value
    with suppress(ValueError, RecursionError):
        return json.loads(value)
    return value
