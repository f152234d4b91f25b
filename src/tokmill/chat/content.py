"""The content of a message: a text, or typed parts of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokmill.chat.conversation import ChatError
from tokmill.chat.tools import read_calls
from tokmill.chat.values import first_present, shown, wrong_type

if TYPE_CHECKING:
    from tokmill.settings.schema import SftSettings

_TEXT, _REASONING, _CALL = 1, 0, 2
_PARTS = {
    "text": _TEXT,
    "input_text": _TEXT,
    "output_text": _TEXT,
    "reasoning": _REASONING,
    "thinking": _REASONING,
    "tool_call": _CALL,
    "function_call": _CALL,
}
"""What a part is, numbered in the order in which every template writes them."""

_VALUE_KEYS = ("text", "value", "content")


@dataclass(frozen=True, slots=True)
class Content:
    """What a message says: `reasoning` is None where it has no part of that kind."""

    text: str = ""
    reasoning: str | None = None
    calls: tuple[dict[str, Any], ...] = ()


def read_content(value: Any, settings: SftSettings, where: str) -> Content:
    """Give a content that is a text, null (empty) or a list of typed parts, joined.

    Raises:
        ChatError: "wrong type"; "unknown content part" for an image or another; "order of parts"
            where a template could not write them as they stand; "broken tool call".
    """
    if isinstance(value, str):
        return Content(value)
    if value is None:
        return Content()
    if not isinstance(value, list):
        raise wrong_type(where, "text or a list of typed parts as content", value)
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    before = _REASONING
    for number, part in enumerate(value, 1):
        here = f"{where}, part {number}"
        kind = _kind(part, before, here)
        if kind == _CALL:
            calls += _part_calls(part, settings, here)
        else:
            (texts if kind == _TEXT else thoughts).append(_part_text(part, here))
        before = kind
    return Content("".join(texts), "".join(thoughts) if thoughts else None, tuple(calls))


def _kind(part: Any, before: int, where: str) -> int:
    if not isinstance(part, dict):
        raise wrong_type(where, "an object with type and text", part)
    name = part.get("type")
    kind = _PARTS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ChatError(
            "unknown content part",
            f"{where}: expected type {', '.join(_PARTS)}, found {shown(name)}",
        )
    if kind < before:
        raise ChatError(
            "order of parts",
            f"{where}: expected reasoning, then text, then tool calls, found {name} behind "
            "a later one; make messages of them",
        )
    return kind


def _part_text(part: dict[str, Any], where: str) -> str:
    value = first_present(part, _VALUE_KEYS)
    if value is None and part["type"] in part:  # {"type": "thinking", "thinking": "…"}
        value = part[part["type"]]
    if not isinstance(value, str):
        raise wrong_type(where, f"text under {', '.join(_VALUE_KEYS)}", value)
    return value


def _part_calls(part: dict[str, Any], settings: SftSettings, where: str) -> list[dict[str, Any]]:
    calls = read_calls(first_present(part, _VALUE_KEYS), settings, where)
    if not calls:
        raise ChatError("broken tool call", f"{where}: expected a call as value, found none")
    return calls
