"""The content of a message: a text, or typed parts, of which each has a kind and a weight."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tokmill.chat.conversation import ChatError
from tokmill.chat.names import (
    PART_KEYS,
    SWITCH_KEYS,
    first_present,
    is_filled,
    objects_in,
    shown,
    wrong_type,
)
from tokmill.chat.reading.agents import UNKNOWN_PART
from tokmill.chat.reading.tools import BROKEN_CALL, read_calls
from tokmill.chat.weights import message_weight

if TYPE_CHECKING:
    from tokmill.settings.sft import SftSettings

PARTS = {
    **dict.fromkeys(("text", "input_text", "output_text", "refusal"), "content"),
    **dict.fromkeys(("reasoning", "thinking"), "reasoning_content"),
    **dict.fromkeys(("tool_call", "function_call"), "tool_calls"),
}
"""The key of a message under which a part of each type comes."""

_MEDIA_PARTS = frozenset(
    (
        "image", "image_url", "input_image", "document", "file", "input_file", "audio",
        "input_audio", "video", "video_url", "search_result", "resource", "resource_link",
    )
)  # fmt: skip
"""Types of parts that are no text; a list with one of them is no result to be written as JSON."""

_ORDER_OF_PARTS = ("reasoning_content", "content", "tool_calls")
"""As all templates write them."""

READ_IN_PART = frozenset(("type", *PART_KEYS, *SWITCH_KEYS))
"""Keys of a part that are read here, beside one with the name of its type."""


class GivenWeight(NamedTuple):
    """The weight that a part gives, None if none; its place in the text of a message's key."""

    key: str
    start: int
    stop: int
    weight: float | None


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a message; `reasoning` is None if it has no such part.

    `weights`: of each part.
    """

    text: str = ""
    reasoning: str | None = None
    calls: tuple[dict[str, Any], ...] = ()
    weights: tuple[GivenWeight, ...] = field(default=(), compare=False)


def read_content(value: Any, settings: SftSettings, where: str) -> Content:
    """Return a content: a text, null (empty), or typed parts, which are joined.

    The parts are a list, one alone, or an object of lists, as `datasets` keeps lists of objects.
    """
    if isinstance(value, str):
        return Content(value)
    if value is None:
        return Content()
    if isinstance(value, dict) and "type" in value:
        value = objects_in(value)
    if not isinstance(value, list):
        raise wrong_type(where, "text or a list of typed parts as content", value)
    pieces_by_key: dict[str, list[str]] = {}
    lengths = dict.fromkeys(_ORDER_OF_PARTS, 0)
    calls: list[dict[str, Any]] = []
    weights: list[GivenWeight] = []
    before = _ORDER_OF_PARTS[0]
    for number, part in enumerate(value, 1):
        if part is None:  # columnar files have such lists
            continue
        here = f"{where}, part {number}"
        before = key = _key_of_part(part, before, here)
        start = lengths[key]
        if key == "tool_calls":
            own = read_calls(first_present(part, PART_KEYS), settings, here)
            if not own:
                raise ChatError(BROKEN_CALL, f"{here}: expected a call as value, found none")
            calls += own
        else:
            text = _part_text(part, here)
            pieces_by_key.setdefault(key, []).append(text)
            lengths[key] += len(text)
        weight = message_weight(part, settings, here)
        weights.append(GivenWeight(key, start, lengths[key], weight))
    texts = {key: "".join(pieces) for key, pieces in pieces_by_key.items()}
    return Content(
        texts.get("content", ""), texts.get("reasoning_content"), tuple(calls), tuple(weights)
    )


def _key_of_part(part: Any, before: str, where: str) -> str:
    """Return the key of a message that a part belongs to; `before`: that of the part before it."""
    if not isinstance(part, dict):
        raise wrong_type(where, "an object with type and text", part)
    name = part.get("type")
    key = PARTS.get(name) if isinstance(name, str) else None
    if key is None:
        raise ChatError(
            UNKNOWN_PART,
            f"{where}: expected type {', '.join(PARTS)}, found {shown(name)}",
        )
    if _ORDER_OF_PARTS.index(key) < _ORDER_OF_PARTS.index(before):
        raise ChatError(
            "order of parts",
            f"{where}: expected reasoning, then text, then tool calls, found {name} behind "
            "a later one; make messages of them",
        )
    return key


def _part_text(part: dict[str, Any], where: str) -> str:
    value = first_present(part, PART_KEYS)
    if value is None and part["type"] in part:  # {"type": "thinking", "thinking": "…"}
        value = part[part["type"]]
    others = [key for key in part if key not in READ_IN_PART and is_filled(part[key])]
    if value is None and not others:  # columnar files have such parts
        return ""
    if not isinstance(value, str):
        raise wrong_type(where, f"text under {', '.join(PART_KEYS)}", value)
    return value


def read_result(value: Any, settings: SftSettings, where: str) -> Content:
    """Return what a tool returned: text and typed parts as such, any other value as JSON."""
    if isinstance(value, str):
        return Content(value)
    is_list = isinstance(value, list)
    types = {part.get("type") for part in value if isinstance(part, dict)} if is_list else ()
    are_parts = any(isinstance(name, str) and _is_part_type(name) for name in types)
    if are_parts or not is_filled(value):
        return read_content(value, settings, where)
    return Content(json.dumps(value, ensure_ascii=False))


def _is_part_type(name: str) -> bool:
    return name in PARTS or name in _MEDIA_PARTS
