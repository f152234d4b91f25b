"""Make text safe for a terminal: file names, messages and records may hold any character."""

from __future__ import annotations

import json
import unicodedata
from typing import Any


def printable(text: str) -> str:
    """Return text as one line; characters that affect a terminal are written as their numbers.

    These are control characters (escape sequences, line breaks), format characters (which reverse
    or hide text), halves of surrogate pairs, and unassigned characters.
    """
    if text.isprintable():
        return text
    return "".join(c if _is_shown(c) else repr(c)[1:-1] for c in text)


def printable_lines(text: str) -> str:
    """Return text of several lines, each made `printable`."""
    return "\n".join(map(printable, text.split("\n")))


def json_text(value: Any) -> str:
    """Return a value as one line of JSON; unprintable characters are JSON escapes."""
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(c if _is_shown(c) else json.dumps(c)[1:-1] for c in text)


def _is_shown(c: str) -> bool:
    return c.isprintable() or unicodedata.category(c) == "Zs"  # spaces, such as U+3000
