"""Tools of a record and tool calls of a message, in the one form that templates get."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tokmill.chat.conversation import OF_CALL, ChatError
from tokmill.chat.names import (
    TOOL_KEYS,
    as_object,
    first_present,
    is_filled,
    objects_in,
    parsed,
    shown,
    shown_keys,
)
from tokmill.chat.reading.agents import declared_functions, with_parameters, without_built_in
from tokmill.chat.reading.table_nulls import for_template, is_utf8

if TYPE_CHECKING:
    from tokmill.settings.sft import SftSettings

BROKEN_CALL, _BROKEN_TOOLS = "broken tool call", "broken tools"
_BESIDE_ARGUMENTS = frozenset({"name", "id", "type", "index"})
"""Keys of a call without arguments."""


class Tools(NamedTuple):
    """The functions that a record describes, None if it has none.

    `unread`: the names of the tools of a server, as `tools[].web_search`: no function describes
    them, and no template can show them.
    """

    functions: list[Any] | None
    unread: tuple[str, ...] = ()


def read_tools(record: Mapping[str, Any], first: Any = None) -> Tools:
    """Return the functions that a record describes.

    They are a list, one object, an object of lists, or JSON text of these, under one of
    `TOOL_KEYS`, or as in minimind in the first message, `first`. A bare function becomes
    {"type": "function", "function": {...}}.
    """
    value = first_present(record, TOOL_KEYS)
    if value is None and isinstance(first, dict):
        value = first.get("tools")
    if value is None:
        return Tools(None)
    listed = parsed(value, _BROKEN_TOOLS, "tools")
    if isinstance(listed, dict):
        listed = objects_in(listed)
    if listed is not None and not isinstance(listed, list):
        raise ChatError(_BROKEN_TOOLS, f"tools: expected a list, found {shown(listed)}")
    functions, built_in = [], set()
    for entry in listed or ():
        tool, names = without_built_in(entry)
        functions += declared_functions(tool)
        built_in.update(names)
    read = [_read_tool(tool, f"tool {i}") for i, tool in enumerate(functions, 1)]
    return Tools(read or None, tuple([f"tools[].{name}" for name in sorted(built_in)]))


def _read_tool(value: Any, where: str) -> dict[str, Any]:
    tool, function = _function_in(value, _BROKEN_TOOLS, where)
    if tool.get("type") == "function" and function is not tool:
        canonical = with_parameters(function)
        return tool if canonical is function else {**tool, "function": canonical}
    rest = {key: tool[key] for key in tool if key not in ("type", "function")}
    if function is not tool:
        return {"type": "function", **rest, "function": with_parameters(function)}
    return {"type": "function", "function": with_parameters(rest)}


def _function_in(value: Any, reason: str, where: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return an object, which may be JSON text, and the function that it holds, or is itself."""
    item = function = as_object(parsed(value, reason, where))
    if isinstance(item, dict) and (
        item.get("type") in (None, "function")
        # Anthropic's name of a function that the user defines
        or (item.get("type") == "custom" and is_filled(item.get("input_schema")))
    ):
        function = item if item.get("function") is None else as_object(item["function"])
        if isinstance(function, dict) and function.get("name") and type(function["name"]) is str:
            return item, function
    raise ChatError(reason, f"{where}: expected a function with a name, found {shown(function)}")


def read_calls(value: Any, settings: SftSettings, where: str) -> list[dict[str, Any]]:
    """Return tool calls as {"type": "function", "function": {"name", "arguments"}}, `id` if any.

    `value`: a call, a list of calls, an object of lists, or JSON text of these. A call has
    `function`, or `name` and `arguments`.
    """
    calls = parsed(value, BROKEN_CALL, where)
    if calls is None:
        return []
    listed = objects_in(calls) if isinstance(calls, dict) else calls
    if not isinstance(listed, list):
        raise ChatError(BROKEN_CALL, f"{where}: expected a list of calls, found {shown(calls)}")
    return [_read_call(call, settings, where) for call in listed if call is not None]


def _read_call(value: Any, settings: SftSettings, where: str) -> dict[str, Any]:
    call, function = _function_in(value, BROKEN_CALL, where)
    arguments = _read_arguments(function, settings, f"{where}: {shown(function['name'])}")
    names = {} if call.get("id") is None else {"id": call["id"]}
    canonical = {"name": function["name"], "arguments": arguments}
    if function is not call:
        canonical |= _beside_call(function)
    return {**names, "type": "function", "function": canonical, **_beside_call(call)}


def _beside_call(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a call, or the function in it, says beyond what is read of it."""
    beside = {}
    for key, value in item.items():
        held = None if key in OF_CALL or not is_utf8(key) else for_template(value)
        if held is not None:
            beside[key] = held
    return beside


def _read_arguments(function: Mapping[str, Any], settings: SftSettings, where: str) -> Any:
    """Return the arguments of a call; without any, an empty object."""
    arguments = function.get("arguments")
    if arguments is None:
        others = [k for k in function if k not in _BESIDE_ARGUMENTS and function[k] is not None]
        if others:
            raise ChatError(BROKEN_CALL, f"{where}: expected arguments, found {shown_keys(others)}")
        return {}
    if isinstance(arguments, str):
        if settings.tool_arguments == "keep":
            return arguments
        arguments = parsed(arguments, BROKEN_CALL, f"{where}: arguments")
    if arguments is None or arguments == []:  # of a call without any: "", "null", an empty map
        return {}
    arguments = as_object(arguments)
    if not isinstance(arguments, dict):
        raise ChatError(
            BROKEN_CALL, f"{where}: expected arguments in an object, found {shown(arguments)}"
        )
    return arguments
