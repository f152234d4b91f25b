"""Tools of a conversation, and the calls of them: one form for the many that records have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.chat.conversation import ChatError
from tokmill.chat.keys import TOOL_KEYS
from tokmill.chat.values import first_present, parse_json, parsed, shown, shown_keys

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokmill.settings.schema import SftSettings

_BROKEN_CALL = "broken tool call"
_BROKEN_TOOLS = "broken tools"
_TOOLS = frozenset(TOOL_KEYS)
_CALL_KEYS = frozenset({"name", "id", "type", "index"})


def read_tools(record: Mapping[str, Any], first: Any = None) -> list[Any] | None:
    """Give the functions that a record describes, None where it has none.

    Under one of `TOOL_KEYS`, a list or JSON text of one; minimind keeps it in the first
    message, `first`. A bare function is wrapped as {"type": "function", "function": {...}}.

    Raises:
        ChatError: "broken tools".
    """
    value = None if _TOOLS.isdisjoint(record) else first_present(record, TOOL_KEYS)
    if value is None and isinstance(first, dict):
        value = first.get("tools")
    if value is None:
        return None
    listed = parsed(value, _BROKEN_TOOLS, "tools")
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
    """Give tool calls as {"type": "function", "function": {"name", "arguments"}}, `id` if any.

    `value` is a call or a list of them, or JSON text of either; a call has `function`, or `name`
    and `arguments` itself.

    Raises:
        ChatError: "broken tool call".
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
    """Give the arguments of a call; none are an empty object, but under another name are lost."""
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
