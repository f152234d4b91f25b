"""The content of a message: text, typed parts, tool calls; and the tools of a conversation."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from tokmill.chat.conversation import ChatError
from tokmill.chat.reading.names import PART_KEYS, TOOL_KEYS
from tokmill.chat.reading.values import (
    first_present,
    parse_json,
    parsed,
    shown,
    shown_keys,
    wrong_type,
)
from tokmill.chat.weights import message_weight

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokmill.settings.sft import SftSettings

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
"""The kind of each type of part; kinds are numbered in the order that all templates use."""

_MESSAGE_KEYS = ("reasoning_content", "content", "tool_calls")
"""By kind: the key of a message under which a part of it comes."""


class GivenWeight(NamedTuple):
    """The weight that a part gives, None if none; its place in the text of a message's key."""

    key: str
    start: int
    stop: int
    weight: float | None


NO_WEIGHTS: tuple[GivenWeight, ...] = ()


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a message; `reasoning` is None if it has no such part.

    `weights`: of each part.
    """

    text: str = ""
    reasoning: str | None = None
    calls: tuple[dict[str, Any], ...] = ()
    weights: tuple[GivenWeight, ...] = field(default=NO_WEIGHTS, compare=False)


def read_content(value: Any, settings: SftSettings, where: str) -> Content:
    """Return a content: a text, null (empty), or a list of typed parts, which are joined."""
    if isinstance(value, str):
        return Content(value)
    if value is None:
        return Content()
    if not isinstance(value, list):
        raise wrong_type(where, "text or a list of typed parts as content", value)
    found: dict[int, list[str]] = {_REASONING: [], _TEXT: [], _CALL: []}
    calls: list[dict[str, Any]] = []
    weights = []
    lengths = [0, 0, 0]
    before = _REASONING
    for number, part in enumerate(value, 1):
        here = f"{where}, part {number}"
        kind = _kind(part, before, here)
        start = lengths[kind]
        if kind == _CALL:
            calls += _part_calls(part, settings, here)
        else:
            found[kind].append(_part_text(part, here))
            lengths[kind] += len(found[kind][-1])
        stop = lengths[kind]
        weight = message_weight(part, settings, here)
        weights.append(GivenWeight(_MESSAGE_KEYS[kind], start, stop, weight))
        before = kind
    reasoning = "".join(found[_REASONING]) if found[_REASONING] else None
    return Content("".join(found[_TEXT]), reasoning, tuple(calls), tuple(weights))


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
    value = first_present(part, PART_KEYS)
    if value is None and part["type"] in part:  # {"type": "thinking", "thinking": "…"}
        value = part[part["type"]]
    if not isinstance(value, str):
        raise wrong_type(where, f"text under {', '.join(PART_KEYS)}", value)
    return value


def _part_calls(part: dict[str, Any], settings: SftSettings, where: str) -> list[dict[str, Any]]:
    calls = read_calls(first_present(part, PART_KEYS), settings, where)
    if not calls:
        raise ChatError("broken tool call", f"{where}: expected a call as value, found none")
    return calls


_BROKEN_CALL = "broken tool call"
_BROKEN_TOOLS = "broken tools"
_TOOLS = frozenset(TOOL_KEYS)
_CALL_KEYS = frozenset({"name", "id", "type", "index"})


def read_tools(record: Mapping[str, Any], first: Any = None) -> list[Any] | None:
    """Return the functions that a record describes, None if it has none.

    They are a list, or JSON text of one, under one of `TOOL_KEYS`, or as in minimind in the first
    message, `first`. A bare function becomes {"type": "function", "function": {...}}.
    """
    value = None if _TOOLS.isdisjoint(record) else first_present(record, TOOL_KEYS)
    if value is None and isinstance(first, dict):
        value = first.get("tools")
    return _tools_of_text(value) if isinstance(value, str) else _tools_of(value)


@lru_cache(maxsize=64)
def _tools_of_text(text: str) -> list[Any] | None:
    """Return the functions of a JSON text, which many records may have; they share the result."""
    return _tools_of(parsed(text, _BROKEN_TOOLS, "tools"))


def _tools_of(listed: Any) -> list[Any] | None:
    if listed is not None and not isinstance(listed, list):
        raise ChatError(_BROKEN_TOOLS, f"tools: expected a list, found {shown(listed)}")
    return [_read_tool(tool, f"tool {i}") for i, tool in enumerate(listed or (), 1)] or None


def _read_tool(value: Any, where: str) -> dict[str, Any]:
    tool = parsed(value, _BROKEN_TOOLS, where)
    if isinstance(tool, dict) and tool.get("type") in (None, "function"):
        rest = {key: tool[key] for key in tool if key != "type"}
        function = tool.get("function")
        if isinstance(function, dict) and _is_name(function.get("name")):
            return tool if tool.get("type") else {"type": "function", **rest}
        if function is None and _is_name(tool.get("name")):
            return {"type": "function", "function": rest}
    raise ChatError(_BROKEN_TOOLS, f"{where}: expected a function with a name, found {shown(tool)}")


def read_calls(value: Any, settings: SftSettings, where: str) -> list[dict[str, Any]]:
    """Return tool calls as {"type": "function", "function": {"name", "arguments"}}, `id` if any.

    `value`: a call or a list of calls, or JSON text of either. A call has `function`, or `name` and
    `arguments`.
    """
    calls = parsed(value, _BROKEN_CALL, where)
    if calls is None:
        return []
    listed = [calls] if isinstance(calls, dict) else calls
    if not isinstance(listed, list):
        raise ChatError(_BROKEN_CALL, f"{where}: expected a list of calls, found {shown(calls)}")
    return [_read_call(call, settings, where) for call in listed]


def _read_call(value: Any, settings: SftSettings, where: str) -> dict[str, Any]:
    call = parsed(value, _BROKEN_CALL, where)
    function = call
    if isinstance(call, dict) and call.get("function") is not None:
        function = call["function"]
    if not isinstance(function, dict) or not _is_name(function.get("name")):
        raise ChatError(
            _BROKEN_CALL, f"{where}: expected a call with a name, found {shown(function)}"
        )
    if call.get("type") not in (None, "function"):
        raise ChatError(
            _BROKEN_CALL, f"{where}: expected type 'function', found {shown(call['type'])}"
        )
    arguments = _read_arguments(function, settings, f"{where}: {shown(function['name'])}")
    names = {} if call.get("id") is None else {"id": call["id"]}
    canonical = {"name": function["name"], "arguments": arguments}
    return {**names, "type": "function", "function": canonical}


def _read_arguments(function: Mapping[str, Any], settings: SftSettings, where: str) -> Any:
    """Return the arguments of a call; without any, an empty object."""
    arguments = function.get("arguments")
    if arguments is None:
        others = [k for k in function if k not in _CALL_KEYS and function[k] is not None]
        if others:
            raise ChatError(
                _BROKEN_CALL, f"{where}: expected arguments, found {shown_keys(others)}"
            )
        return {}
    if isinstance(arguments, str):
        if settings.tool_arguments == "keep":
            return arguments
        arguments = parse_json(arguments, _BROKEN_CALL, f"{where}: arguments")
    if not isinstance(arguments, dict):
        raise ChatError(
            _BROKEN_CALL, f"{where}: expected arguments in an object, found {shown(arguments)}"
        )
    return arguments


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)
