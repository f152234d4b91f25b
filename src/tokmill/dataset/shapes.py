"""Shapes of JSON values: which keys an object must have, and the kind of each value.

A manifest, a plan or a record may come from a stranger, with a sum that fits. Each is compared with
its shape where it is read, so code behind it takes any key of the shape without a question.

A shape is `[kind]` for a list, one with more kinds for so many entries, an object, `(kind, None)`
for a value that can be null, a range of whole numbers, a set of strings, a pattern, or a type. A
key that ends with "?" can be missing, and keys that are in no shape are not looked at: a newer
version may have added them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import starmap
from typing import Any

from tokmill.words import printable

ANY = "*"
"""In a shape: all keys of an object, with values of one kind."""

_MOST = 1 << 63
COUNT, POSITIVE, PLACE = range(_MOST), range(1, _MOST), range(-1, _MOST)
ID = range(1 << 32)
NUMBER, TEXT, FLAG = float, str, bool
BY_NAME = {ANY: COUNT}

_LONGEST_KEY = 40


def shape_problem_of(value: Any, shape: Any) -> str:
    """Return a line on the first value that is not of its kind, with its place, or ''."""
    try:
        return _problem(value, shape, "")
    except RecursionError:
        return "nested too deeply"


def _problem(value: Any, shape: Any, where: str) -> str:
    """Return a line on the first value that is not of its kind, or ''; `where`: its place."""
    if isinstance(shape, tuple):
        return "" if value is None else _problem(value, shape[0], where)
    if not isinstance(shape, list | dict):
        is_one, words = _simple(value, shape)
        return "" if is_one else expected(where, words, value)
    inside: Iterator[tuple[Any, Any, str]]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return expected(where, "a list", value)
        kinds = shape if len(shape) > 1 else shape * len(value)
        if len(kinds) != len(value):
            return f"{where}: expected {len(kinds)} entries, found {len(value)}"
        inside = ((entry, kinds[i], f"{where}[{i}]") for i, entry in enumerate(value))
    elif not isinstance(value, dict):
        return expected(where, "an object", value)
    elif ANY in shape:
        inside = ((entry, shape[ANY], f"{where}.{_key(key)}") for key, entry in value.items())
    else:
        prefix = f"{where}." if where else ""
        for name in shape:
            if not name.endswith("?") and name not in value:
                return f"{prefix}{name}: missing"
        keys = ((name, name.removesuffix("?")) for name in shape)
        inside = ((value[key], shape[n], f"{prefix}{key}") for n, key in keys if key in value)
    return next(filter(None, starmap(_problem, inside)), "")


def _simple(value: Any, kind: Any) -> tuple[bool, str]:
    """Return whether a value that is no container is of a kind, and what the kind is called."""
    if isinstance(kind, range):
        most = "" if kind.stop == _MOST else f" to {kind.stop - 1:,}"
        return type(value) is int and value in kind, f"a whole number from {kind.start}{most}"
    if isinstance(kind, set):
        return isinstance(value, str) and value in kind, " or ".join(sorted(kind))
    if isinstance(kind, re.Pattern):
        is_one = isinstance(value, str) and kind.fullmatch(value) is not None
        return is_one, f"a string like {shown(kind.pattern)}"
    if kind is NUMBER:
        return type(value) in (int, float) and 0 <= value < _MOST, "a number from 0"
    if kind is TEXT:
        return isinstance(value, str) and is_text(value), "a string"
    return isinstance(value, kind), "true or false"


def is_text(value: str) -> bool:
    """Return whether a string can be the name of a file: neither zero bytes nor half characters.

    Bytes of a name that are no UTF-8 are kept as Python writes them (`surrogateescape`).
    """
    if value.isascii():
        return "\0" not in value
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return "\0" not in value


def expected(where: str, words: str, value: Any) -> str:
    """Return a line that says what was expected at a place of a value, and what was found."""
    return f"{where}: expected {words}, found {shown(value)}"


def shown(value: Any) -> str:
    """Return a value as a message shows it: short, and without characters of a terminal."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _key(key: str) -> str:
    """Return a key that is not of the shape, such as a reason: short and printable."""
    return printable(key if len(key) <= _LONGEST_KEY else f"{key[:_LONGEST_KEY]}…")
