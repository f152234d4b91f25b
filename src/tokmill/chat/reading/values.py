"""Values of a record: parse JSON, look up one of several keys, check types, show in messages."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Any

from tokmill.chat.conversation import ChatError
from tokmill.chat.reading.names import is_filled

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""An escaped surrogate; this search takes a third of the time of `in`."""

_SHOWN_CHARACTERS = 40
_SHOWN_KEYS = 20


def parse_json(text: str, reason: str, where: str) -> Any:
    """Return the value of a JSON text; integers are exact, the last of equal keys wins."""
    try:
        value = json.loads(text)
        if not text.isascii():
            text.encode()
        if _SURROGATE.search(text):  # perhaps a lone one
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        found = shown(error.object[error.start])
        raise ChatError(
            "lone surrogate", f"{where}: expected text that can be UTF-8, found {found} in it"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ChatError(
            reason, f"{where}: expected JSON, found {shown(text)}: {str(error).lower()}"
        ) from None
    return value


def parsed(value: Any, reason: str, where: str) -> Any:
    """Return a value that may be JSON text of itself; empty text is null."""
    if not isinstance(value, str):
        return value
    return parse_json(value, reason, where) if value.strip() else None


def first_present(record: Mapping[str, Any], keys: Iterable[str]) -> Any:
    """Return the first filled value, else the first that is not null, else None.

    Columnar files fill absent fields with nulls, tables with empty texts.
    """
    present = None
    for key in keys:
        value = record.get(key)
        if value or is_filled(value):
            return value
        if present is None:
            present = value
    return present


def filled_key(record: Mapping[str, Any], keys: Iterable[str]) -> str:
    """Return the first key that is filled; '' if none is."""
    for key in keys:  # for every record: a generator would take twice as long
        if is_filled(record.get(key)):
            return key
    return ""


def text_of(value: Any, where: str) -> str:
    """Return a text; null is empty."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    raise wrong_type(where, "text", value)


def wrong_type(where: str, expected: str, found: object) -> ChatError:
    """Return the error for a value of another type than expected."""
    return ChatError("wrong type", f"{where}: expected {expected}, found {shown(found)}")


def shown(value: object) -> str:
    """Return a value for a message: strings shortened, containers by their type."""
    if isinstance(value, str):
        cut = len(value) > _SHOWN_CHARACTERS
        return repr(value[:_SHOWN_CHARACTERS]) + ("…" if cut else "")
    if isinstance(value, dict):
        return f"an object with {shown_keys(list(value))}"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return json.dumps(value)


def quoted(argument: str) -> str:
    """Return an argument quoted for a shell."""
    return shlex.quote(argument)


def shown_keys(keys: Sequence[str]) -> str:
    """Return the first twenty keys of an object for a message."""
    if not keys:
        return "no keys"
    names = [
        key if key.isprintable() and len(key) <= _SHOWN_CHARACTERS else shown(key)
        for key in keys[:_SHOWN_KEYS]
    ]
    more = len(keys) - len(names)
    return f"keys {', '.join(names)}" + (f" and {more} more" if more else "")
