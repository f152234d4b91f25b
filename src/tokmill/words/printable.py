"""Text that cannot drive a terminal: file names, messages and records may hold any character."""

from __future__ import annotations

import json
import unicodedata
from typing import Any


def printable(text: str) -> str:
    """Return text as one line; characters that a terminal would obey are written by their numbers.

    These are control characters (escape sequences, line breaks), format characters (which turn text
    round or hide it), halves of surrogate pairs, and what no version of Unicode knows.
    """
    if text.isprintable():
        return text
    return "".join(c if _is_shown(c) else repr(c)[1:-1] for c in text)


def printable_lines(text: str) -> str:
    """Return text of several lines, each of them as `printable` has it."""
    return "\n".join(map(printable, text.split("\n")))


def json_text(value: Any) -> str:
    """Return a value as one line of JSON; what `printable` would change is an escape of JSON."""
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(c if _is_shown(c) else json.dumps(c)[1:-1] for c in text)


def _is_shown(c: str) -> bool:
    return c.isprintable() or unicodedata.category(c) == "Zs"  # spaces, such as U+3000
