"""Helpers that built-in templates share: literals with control tokens, JSON, and refusals."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tokmill.chat.conversation import ChatError
from tokmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tokmill.chat.conversation import Message
    from tokmill.chat.segments import Kind, Segments


class Literals:
    """Writes strings of the template itself, in which a control token's string is the token.

    The control tokens depend on the tokenizer: `<tool_call>` is one in some.
    """

    def __init__(self, control: Collection[str]) -> None:
        longest_first = sorted(control, key=len, reverse=True)
        self._pattern = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")
        self._known: dict[tuple[str, Kind], tuple[list[str], list[int]]] = {}

    def write(self, segments: Segments, literal: str, kind: Kind) -> None:
        """Add a literal to the open turn."""
        known = self._known.get((literal, kind))
        if known is None:
            pieces = self._pattern.split(literal)
            named = [(piece if i % 2 else "", kind) for i, piece in enumerate(pieces)]
            known = self._known[literal, kind] = pieces, segments.codes(*named)
        segments.add(*known)


def require(control: Mapping[str, int], strings: Collection[str], template: str) -> None:
    """Check that a tokenizer has the control tokens of a template.

    Raises:
        UsageError: one is missing.
    """
    missing = [string for string in strings if string not in control]
    if missing:
        raise UsageError(
            f"template {template} needs the control tokens {', '.join(missing)}, which this "
            "tokenizer does not have: use its own (--template=tokenizer), plain or alpaca"
        )


def as_json(value: Any) -> str:
    """Return a value as JSON, without escapes for other scripts, as chat templates write it."""
    return _to_json(value)


_to_json = json.JSONEncoder(ensure_ascii=False).encode
"""`json.dumps` makes such an encoder in every call."""


def function_of(call: Mapping[str, Any]) -> tuple[str, str]:
    """Return the name of a tool call and its arguments as JSON."""
    function = call["function"]
    arguments = function["arguments"]
    return function["name"], arguments if isinstance(arguments, str) else as_json(arguments)


def refuse(message: Message, number: int, keys: Collection[str], template: str) -> None:
    """Refuse a message with a field that a template cannot write."""
    found = [key for key in keys if message.get(key)]
    if found:
        raise ChatError(
            "not in this template",
            f"message {number} has {found[0]}, which template {template} cannot write: "
            "use another --template, or leave it out: --ignore-keys and the key it stands under",
        )
