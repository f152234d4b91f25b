"""Chats as agents and servers keep them, to the messages of OpenAI's chat completions.

    Anthropic   blocks `tool_use` and `tool_result` in the contents of messages
    Responses   OpenAI's items: `message`, `reasoning`, `function_call`, `function_call_output`
    Gemini      `contents` of `parts`: `text`, `functionCall`, `functionResponse`

All become messages whose content is a list of typed parts, which `messages.py` reads. What has no
place there is refused with its name. Keys that say nothing here stay, and count as unread.

These formats match a result with its call by id, so that results may stand in any order. Many
templates write no ids: results that follow each other get the order of their calls, and the names.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from tokmill.chat.conversation import ChatError
from tokmill.chat.names import (
    CALL_KEYS,
    CONTENT_KEYS,
    REASONING_KEYS,
    ROLE_KEYS,
    SWITCH_KEYS,
    as_object,
    filled_key,
    first_present,
    is_filled,
    known_names,
    renamed,
    role_of,
    shown,
    shown_keys,
    wrong_type,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokmill.settings.sft import SftSettings

    Item = Mapping[str, Any]

UNKNOWN_PART = "unknown content part"
_LOST_RESULT = "result without its call"

_TEXT_BLOCKS = ("text", "input_text", "output_text")
_ITEM_TYPES = ("message", "reasoning", "function_call", "function_call_output")


class _Call(NamedTuple):
    id: str | None
    name: str | None


class _Chat:
    """Collects the messages of a conversation, and matches results with their calls."""

    def __init__(self, where: str) -> None:
        self.messages: list[Any] = []
        self._where = where
        self._reply: list[Any] = []
        self._beside_reply: dict[str, Any] = {}
        self._calls: list[_Call] = []
        self._number_by_id: dict[str, int] = {}
        self._first_open = 0
        self._is_answered: list[bool] = []
        self._results: list[tuple[int, dict[str, Any]]] = []

    def add(self, message: Any) -> None:
        """Add a message that is no result."""
        self.end()
        self.messages.append(message)

    def add_to_reply(self, parts: Sequence[Any], rest: Item) -> None:
        """Add parts to the reply of the assistant that `end` ends; `rest`: keys beside them."""
        self._end_results()
        weights = {key: rest[key] for key in rest if key in SWITCH_KEYS}
        self._reply += [{**weights, **part} if isinstance(part, dict) else part for part in parts]
        self._beside_reply = {**_rest(rest, *SWITCH_KEYS), **self._beside_reply}

    def has_reply(self, *types: str) -> bool:
        """Return whether the reply has a part of one of the types so far."""
        return any(isinstance(part, dict) and part.get("type") in types for part in self._reply)

    def end(self) -> None:
        """End the reply and the results that follow each other."""
        self._end_results()
        if not self._reply:  # keys alone, such as encrypted reasoning, are none
            return
        self.messages.append({**self._beside_reply, "role": "assistant", "content": self._reply})
        self._reply, self._beside_reply = [], {}

    def call_part(self, call: Item, arguments: Any, rest: Item) -> dict[str, Any]:
        """Return the part of a call, an object with name and id, and note the call."""
        id_ = call.get("id")
        if isinstance(id_, str):
            self._number_by_id[id_] = len(self._calls)
        self._calls.append(_Call(id_, call.get("name")))
        self._is_answered.append(False)
        own = {"id": call.get("id"), "name": call.get("name"), "arguments": arguments}
        return {**rest, "type": "tool_call", "value": own}

    def add_result(self, call: _Call, content: Any, rest: Item) -> None:
        """Add the result of a call."""
        if self._reply:
            self.end()
        number = self._number_of(call)
        self._is_answered[number] = True
        known = self._calls[number]
        message = {**rest, "role": "tool", "content": content}
        if known.id is not None:
            message["tool_call_id"] = known.id
        message["name"] = known.name
        self._results.append((number, message))

    def _end_results(self) -> None:
        """Add the results that follow each other, in the order of their calls."""
        self._results.sort(key=lambda result: result[0])
        self.messages += [message for _, message in self._results]
        self._results = []

    def _number_of(self, wanted: _Call) -> int:
        """Return the number of a call: the last of its id, else the first without a result."""
        number: int | None = None
        if isinstance(wanted.id, str):
            number = self._number_by_id.get(wanted.id)
        elif wanted.id is None:
            number = self._first_without_result(wanted.name)
        if number is None:
            raise ChatError(
                _LOST_RESULT,
                f"{self._where} {len(self.messages) + 1}: expected the result of an earlier call, "
                f"found one of {shown(wanted.name if wanted.id is None else wanted.id)}",
            )
        return number

    def _first_without_result(self, name: str | None) -> int | None:
        while self._first_open < len(self._calls) and self._is_answered[self._first_open]:
            self._first_open += 1
        for number in range(self._first_open, len(self._calls)):
            if not self._is_answered[number] and name in (None, self._calls[number].name):
                return number
        return None


def chat_messages(items: Sequence[Any], settings: SftSettings, where: str) -> Sequence[Any]:
    """Return a list of messages with Anthropic's blocks and Responses' items in OpenAI's form.

    `where`: what an item is, for messages of errors. Items in other forms stay as they are, but for
    maps that a columnar file keeps as lists of pairs.
    """
    if not _may_differ(items):
        return items
    items = [as_object(item) for item in items]
    if _are_response_items(items, settings):
        return _from_responses(items, settings, where)
    items = [
        _rest(item, "type") if isinstance(item, dict) and item.get("type") == "message" else item
        for item in items
    ]
    if any(_blocks_key(item, settings) for item in items):
        return _from_anthropic(items, settings, where)
    return items


def is_item(value: Any) -> bool:
    """Return whether an object is an item of Responses, or a message."""
    if not isinstance(value, dict):
        return False
    return bool(filled_key(value, ROLE_KEYS)) or value.get("type") in _ITEM_TYPES


def is_content(value: Any) -> bool:
    """Return whether an object is one of Gemini's contents."""
    return isinstance(value, dict) and "parts" in value


def _may_differ(items: Sequence[Any]) -> bool:
    """Return whether an item may be in another form; quick, as in most data none is."""
    for item in items:
        if type(item) is not dict or "type" in item:
            return True
        for value in item.values():
            if type(value) is list:
                return True
    return False


def _beside_content(item: Item, settings: SftSettings) -> dict[str, Any]:
    """Return what a message says besides its role and content, such as a weight."""
    names = known_names(settings.fields, in_message=True)
    used = (*ROLE_KEYS, *CONTENT_KEYS)
    return {key: value for key, value in item.items() if names.get(key, key) not in used}


def _rest(item: Item, *used: str) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key not in used}


# ---- Anthropic


def _blocks_key(item: Any, settings: SftSettings) -> str:
    """Return the key of a content with calls or results as Anthropic's blocks; '' if none."""
    if not isinstance(item, dict):
        return ""
    names = known_names(settings.fields, in_message=True)
    for key, value in item.items():
        if names.get(key, key) in CONTENT_KEYS and isinstance(value, list):
            types = [block.get("type") for block in value if isinstance(block, dict)]
            if "tool_use" in types or "tool_result" in types:
                return str(key)
    return ""


def _from_anthropic(items: Sequence[Any], settings: SftSettings, where: str) -> list[Any]:
    """Return messages whose blocks `tool_use` are parts, and `tool_result` messages of a tool."""
    chat = _Chat(where)
    for number, item in enumerate(items, 1):
        key = _blocks_key(item, settings)
        if not key:
            chat.add(item)
            continue
        parts: list[Any] = []
        for place, block in enumerate(item[key], 1):
            kind = block.get("type") if isinstance(block, dict) else None
            if kind == "tool_use":
                rest = _rest(block, "type", "id", "name", "input")
                parts.append(chat.call_part(block, block.get("input"), rest))
            elif kind == "tool_result":
                if parts:
                    chat.add({**item, key: parts})
                    parts = []
                content = _result_content(
                    block.get("content"), f"{where} {number}, part {place}: tool_result"
                )
                rest = _beside_content(item, settings)
                rest |= _rest(block, "type", "tool_use_id", "content")
                chat.add_result(_Call(block.get("tool_use_id"), None), content, rest)
            else:
                parts.append(block)
        if parts:
            chat.add({**item, key: parts})
    chat.end()
    return chat.messages


def _result_content(value: Any, where: str) -> Any:
    """Return the content of a result; refuse blocks that are no text."""
    for block in value if isinstance(value, list) else ():
        kind = block.get("type") if isinstance(block, dict) else None
        if isinstance(block, dict) and kind not in _TEXT_BLOCKS:
            raise ChatError(UNKNOWN_PART, f"{where}: expected blocks of text, found {shown(kind)}")
    return value


# ---- OpenAI's Responses


def _type_of(item: Any, settings: SftSettings) -> str:
    """Return the type of an item that has no role; '' for a message."""
    if not isinstance(item, dict) or not isinstance(item.get("type"), str):
        return ""
    kind = str(item["type"])
    if kind in ("function_call", "function_call_output") and not filled_key(item, CONTENT_KEYS):
        return kind
    has_role = filled_key(renamed(item, settings, in_message=True), ROLE_KEYS)
    return "" if has_role else kind


def _are_response_items(items: Sequence[Any], settings: SftSettings) -> bool:
    """Return whether items are those of Responses: calls, results, reasoning or messages."""
    types = {_type_of(item, settings) for item in items}
    if not types.isdisjoint(_ITEM_TYPES):
        return True
    are_messages = any(isinstance(item, dict) and item.get("type") == "message" for item in items)
    return are_messages and types != {""}


def _from_responses(items: Sequence[Any], settings: SftSettings, where: str) -> list[Any]:
    """Return messages: what the assistant does without a result between is one message."""
    chat = _Chat(where)
    for number, item in enumerate(items, 1):
        here = f"{where} {number}"
        kind = _type_of(item, settings)
        if not kind and not _is_reply(item, settings):
            chat.add(_rest(item, "type") if isinstance(item, dict) else item)
        elif not kind:
            if chat.has_reply(*_TEXT_BLOCKS):
                chat.end()
            _add_text(chat, renamed(item, settings, in_message=True))
        elif kind == "reasoning":
            _add_reasoning(chat, item, here)
        elif kind == "function_call":
            call = {"id": item.get("call_id"), "name": item.get("name")}
            rest = _rest(item, "type", "call_id", "name", "arguments")
            chat.add_to_reply([chat.call_part(call, item.get("arguments"), {})], rest)
        elif kind == "function_call_output":
            content = _result_content(item.get("output"), f"{here}: output")
            rest = _rest(item, "type", "call_id", "output")
            chat.add_result(_Call(item.get("call_id"), None), content, rest)
        else:
            raise ChatError(
                "unknown item",
                f"{here}: expected type {', '.join(_ITEM_TYPES)}, found {shown(kind)}",
            )
    chat.end()
    return chat.messages


def _is_reply(item: Any, settings: SftSettings) -> bool:
    """Return whether an item is a text of the assistant, and nothing else."""
    if not isinstance(item, dict) or filled_key(item, (*CALL_KEYS, *REASONING_KEYS)):
        return False
    known = renamed(item, settings, in_message=True)
    if not any(key in known for key in CONTENT_KEYS):
        return False
    role = first_present(known, ROLE_KEYS)
    return isinstance(role, str) and role_of(role, settings.role_names) == "assistant"


def _add_text(chat: _Chat, item: Item) -> None:
    content = first_present(item, CONTENT_KEYS)
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    chat.add_to_reply(parts, _rest(item, "type", *ROLE_KEYS, *CONTENT_KEYS))


def _add_reasoning(chat: _Chat, item: Item, where: str) -> None:
    """Add the reasoning of an item: its content, or else the paragraphs of its summary."""
    rest = _rest(item, "type", "content", "summary")
    text = "".join(_texts(item.get("content"), f"{where}: content"))
    if not text:
        text = "\n\n".join(_texts(item.get("summary"), f"{where}: summary"))
    elif is_filled(item.get("summary")):
        rest["summary"] = item["summary"]
    if text and chat.has_reply("reasoning"):
        text = "\n\n" + text
    chat.add_to_reply([{"type": "reasoning", "text": text}] if text else [], rest)


def _texts(value: Any, where: str) -> list[str]:
    """Return the texts of the parts of reasoning, which may be a text, null or missing."""
    if not isinstance(value, list):
        value = [value] if value is not None else []
    texts = []
    for part in value:
        text = part.get("text") if isinstance(part, dict) else part
        if not isinstance(text, str):
            raise wrong_type(where, "a list of texts", text)
        texts.append(text)
    return texts


# ---- Gemini

_NAMES_OF_PARTS = {
    "text": "text",
    "functionCall": "call",
    "function_call": "call",
    "functionResponse": "result",
    "function_response": "result",
}
_BESIDE_PARTS = ("thought", "thoughtSignature", "thought_signature", *SWITCH_KEYS)
_OTHER_PARTS = (
    "inlineData", "inline_data", "fileData", "file_data", "executableCode", "executable_code",
    "codeExecutionResult", "code_execution_result", "toolCall", "tool_call", "toolResponse",
    "tool_response",
)  # fmt: skip


def gemini_messages(contents: Sequence[Any], where: str) -> list[Any]:
    """Return the messages of Gemini's contents."""
    chat = _Chat(where)
    for number, item in enumerate(map(as_object, contents), 1):
        here = f"{where} {number}"
        if not isinstance(item, dict):
            raise wrong_type(here, "an object with role and parts", item)
        parts: list[Any] = []
        rest = _rest(item, "parts")
        for place, part in enumerate(_parts_of(item.get("parts"), here), 1):
            kind, key = _kind_of_part(part, f"{here}, part {place}")
            beside = _rest(part, "thought", key)
            if kind == "result":
                if parts:
                    chat.add({**rest, "content": parts})
                    parts = []
                beside = {**_rest(rest, *ROLE_KEYS), **beside}
                _add_gemini_result(chat, part[key], beside, f"{here}, part {place}: {key}")
            elif kind == "call":
                call = part[key]
                parts.append(chat.call_part(call, call.get("args"), beside))
            else:
                name = "reasoning" if part.get("thought") else "text"
                parts.append({**beside, "type": name, "text": part.get("text") or ""})
        if parts or not is_filled(item.get("parts")):
            chat.add({**rest, "content": parts})
    chat.end()
    return chat.messages


def _parts_of(value: Any, where: str) -> list[Any]:
    """Return the parts of a content, of which there may be one without a list."""
    listed = value if isinstance(value, list) else [value]
    parts = [{"text": part} if isinstance(part, str) else as_object(part) for part in listed]
    found = [part for part in parts if part is not None]
    for part in found:
        if not isinstance(part, dict):
            raise wrong_type(where, "a list of objects as parts", part)
    return found


def _kind_of_part(part: Item, where: str) -> tuple[str, str]:
    """Return what a part is (text, call or result) and the key under which it stands."""
    filled = [key for key in part if is_filled(part[key]) and key not in _BESIDE_PARTS]
    known = [key for key in filled if key in _NAMES_OF_PARTS]
    others = [key for key in filled if key in _OTHER_PARTS]
    if len(known) > 1 or others or (filled and not known):
        raise ChatError(
            UNKNOWN_PART,
            f"{where}: expected one of text, functionCall, functionResponse, found "
            f"{shown_keys(filled)}",
        )
    key = known[0] if known else "text"
    kind = _NAMES_OF_PARTS[key]
    if kind != "text" and not isinstance(part[key], dict):
        raise wrong_type(f"{where}: {key}", "an object with name", part[key])
    if kind == "text" and not isinstance(part.get("text"), str | None):
        raise wrong_type(f"{where}: {key}", "text", part["text"])
    return kind, key


def _add_gemini_result(chat: _Chat, result: Item, beside: Item, where: str) -> None:
    rest = _rest(result, "id", "name", "response")
    if is_filled(rest.pop("parts", None)):  # media
        raise ChatError(UNKNOWN_PART, f"{where}: expected a response alone, found parts")
    content = result.get("response")
    if content is not None and not isinstance(content, str):
        content = json.dumps(content, ensure_ascii=False)
    chat.add_result(_Call(result.get("id"), result.get("name")), content, {**beside, **rest})


def gemini_text(value: Any, where: str) -> str:
    """Return the text of a system instruction: a text, a content, or parts, of text alone."""
    value = as_object(value)
    parts = value.get("parts") if isinstance(value, dict) and "parts" in value else value
    texts = []
    for place, part in enumerate(_parts_of(parts, where), 1):
        kind, _ = _kind_of_part(part, f"{where}, part {place}")
        if kind != "text":
            raise wrong_type(f"{where}, part {place}", "text", part)
        texts.append(part.get("text") or "")
    return "".join(texts)


# ---- tools

_DECLARATIONS = frozenset(("functionDeclarations", "function_declarations"))
_PARAMETERS = frozenset(
    ("input_schema", "inputSchema", "parametersJsonSchema", "parameters_json_schema")
)
"""The key of Gemini's tools, and the names of `parameters` at Anthropic, in MCP and at Gemini."""


_GEMINI_BUILT_IN = frozenset(
    (
        "codeExecution", "computerUse", "enterpriseWebSearch", "fileSearch", "googleMaps",
        "googleSearch", "googleSearchRetrieval", "retrieval", "urlContext", "code_execution",
        "computer_use", "enterprise_web_search", "file_search", "google_maps", "google_search",
        "google_search_retrieval", "url_context",
    )
)  # fmt: skip
_OF_A_FUNCTION = frozenset(
    ("function", "functions", "tools", "description", "parameters", "properties", *_PARAMETERS)
)
"""What an entry has if it describes a function of the user, in whatever form."""
_TYPES_OF_FUNCTIONS = frozenset(("function", "custom", "tool", "object", "namespace"))
_BUILT_IN_FUNCTION = "builtin_function"
"""Kimi's type of a function that its server knows, such as $web_search."""


def declared_functions(tool: Any) -> list[Any]:
    """Return the functions in an entry of a list of tools: one, or those that Gemini declares."""
    if tool is None:
        return []
    if not isinstance(tool, dict) or _DECLARATIONS.isdisjoint(tool):
        return [tool]
    key = filled_key(tool, _DECLARATIONS)
    if not key or len([name for name in tool if is_filled(tool[name])]) > 1:
        return [tool]
    declared = tool[key] if isinstance(tool[key], list) else [tool[key]]
    return [_lower_types(function) for function in declared]


def without_built_in(tool: Any) -> tuple[Any, list[str]]:
    """Return an entry of a list of tools without the tools of the server, and their names.

    A server has them itself: an entry turns them on, and describes no function. The entry that is
    left is None if it has nothing else.
    """
    if not isinstance(tool, dict):
        return tool, []
    kind = tool.get("type")
    if isinstance(kind, str) and kind:
        if kind == _BUILT_IN_FUNCTION:
            return None, [kind]
        is_function = kind in _TYPES_OF_FUNCTIONS or filled_key(tool, _OF_A_FUNCTION)
        return (tool, []) if is_function else (None, [kind])
    names = [key for key in tool if key in _GEMINI_BUILT_IN and isinstance(tool[key], dict)]
    if not names:
        return tool, []
    rest = {key: value for key, value in tool.items() if key not in names and is_filled(value)}
    return rest or None, names


_GEMINI_TYPES = frozenset(("STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"))


def _lower_types(function: Any) -> Any:
    """Return a function with the types of its parameters as JSON Schema writes them."""
    if not isinstance(function, dict):
        return function
    return {
        key: _lower_schema(value) if key in ("parameters", "response") else value
        for key, value in function.items()
    }


def _lower_schema(schema: Any) -> Any:
    if isinstance(schema, list):  # anyOf
        return [_lower_schema(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    lowered: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "type" and isinstance(value, str) and value in _GEMINI_TYPES:
            lowered[key] = value.lower()
        elif key in ("properties", "$defs", "defs") and isinstance(value, dict):
            lowered[key] = {name: _lower_schema(inner) for name, inner in value.items()}
        elif key in ("items", "anyOf", "additionalProperties", "prefixItems"):
            lowered[key] = _lower_schema(value)
        else:
            lowered[key] = value
    return lowered


def with_parameters(function: dict[str, Any]) -> dict[str, Any]:
    """Return a function whose parameters have this name, as templates expect."""
    if _PARAMETERS.isdisjoint(function):
        return function
    key = filled_key(function, _PARAMETERS)
    if not key or is_filled(function.get("parameters")):
        return function
    own = {name: value for name, value in function.items() if name != "parameters"}
    if key == "input_schema":  # a hint of Anthropic's to its server
        own.pop("cache_control", None)
    return {"parameters" if name == key else name: value for name, value in own.items()}
