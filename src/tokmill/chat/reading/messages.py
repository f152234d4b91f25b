"""Messages of a record, in OpenAI's form, ShareGPT's or as pairs, to the form of templates.

A message has text, typed parts, reasoning and tool calls; a conversation has tools.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tokmill.chat.control_strings import REASONING_TAGS
from tokmill.chat.conversation import PART_WEIGHTS, ChatError, Extras, PartWeight
from tokmill.chat.names import (
    ANSWER_KEYS,
    CALL_KEYS,
    CALL_ROLE,
    CONTENT_KEYS,
    DETAIL_KEYS,
    DROP,
    MEDIA_KEYS,
    PART_KEYS,
    PROMPT_KEYS,
    REASONING_KEYS,
    ROLE_GAP,
    ROLE_KEYS,
    ROLE_NAMES,
    SWITCH_KEYS,
    TOOL_KEYS,
    as_object,
    filled_key,
    first_present,
    is_filled,
    is_refusal,
    is_tool_name,
    known_names,
    known_roles,
    parsed,
    renamed,
    role_of,
    shown,
    shown_keys,
    text_of,
    wrong_type,
)
from tokmill.chat.reading.agents import (
    UNKNOWN_PART,
    chat_messages,
    declared_functions,
    with_parameters,
)
from tokmill.chat.reading.table_nulls import for_template
from tokmill.chat.tagged_blocks import split_reasoning
from tokmill.chat.weights import (
    NOT_TRAINED,
    message_weight,
    trains_role,
    without_reply_weights,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokmill.chat.conversation import Counts, Message
    from tokmill.settings.sft import SftSettings

_PARTS = {
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

_BROKEN_CALL, _BROKEN_TOOLS = "broken tool call", "broken tools"
_BESIDE_ARGUMENTS = frozenset({"name", "id", "type", "index"})
"""Keys of a call without arguments."""


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
    """Return a content: a text, null (empty), or a list of typed parts, which are joined."""
    if isinstance(value, str):
        return Content(value)
    if value is None:
        return Content()
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
                raise ChatError(_BROKEN_CALL, f"{here}: expected a call as value, found none")
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
    key = _PARTS.get(name) if isinstance(name, str) else None
    if key is None:
        raise ChatError(
            UNKNOWN_PART,
            f"{where}: expected type {', '.join(_PARTS)}, found {shown(name)}",
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
    others = [key for key in part if key not in _READ_IN_PART and is_filled(part[key])]
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
    return name in _PARTS or name in _MEDIA_PARTS


def read_tools(record: Mapping[str, Any], first: Any = None) -> list[Any] | None:
    """Return the functions that a record describes, None if it has none.

    They are a list, one object, or JSON text of either, under one of `TOOL_KEYS`, or as in minimind
    in the first message, `first`. A bare function becomes {"type": "function", "function": {...}}.
    """
    value = first_present(record, TOOL_KEYS)
    if value is None and isinstance(first, dict):
        value = first.get("tools")
    listed = parsed(value, _BROKEN_TOOLS, "tools")
    if isinstance(listed, dict):
        listed = [listed] if listed else None
    if listed is not None and not isinstance(listed, list):
        raise ChatError(_BROKEN_TOOLS, f"tools: expected a list, found {shown(listed)}")
    tools = []
    for tool in listed or ():
        tools += declared_functions(tool)
    return [_read_tool(tool, f"tool {i}") for i, tool in enumerate(tools, 1)] or None


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

    `value`: a call or a list of calls, or JSON text of either. A call has `function`, or `name` and
    `arguments`.
    """
    calls = parsed(value, _BROKEN_CALL, where)
    if calls is None:
        return []
    listed = [calls] if isinstance(calls, dict) else calls
    if not isinstance(listed, list):
        raise ChatError(_BROKEN_CALL, f"{where}: expected a list of calls, found {shown(calls)}")
    return [_read_call(call, settings, where) for call in listed if call is not None]


def _read_call(value: Any, settings: SftSettings, where: str) -> dict[str, Any]:
    call, function = _function_in(value, _BROKEN_CALL, where)
    arguments = _read_arguments(function, settings, f"{where}: {shown(function['name'])}")
    names = {} if call.get("id") is None else {"id": call["id"]}
    canonical = {"name": function["name"], "arguments": arguments}
    return {**names, "type": "function", "function": canonical}


def _read_arguments(function: Mapping[str, Any], settings: SftSettings, where: str) -> Any:
    """Return the arguments of a call; without any, an empty object."""
    arguments = function.get("arguments")
    if arguments is None:
        others = [k for k in function if k not in _BESIDE_ARGUMENTS and function[k] is not None]
        if others:
            raise ChatError(
                _BROKEN_CALL, f"{where}: expected arguments, found {shown_keys(others)}"
            )
        return {}
    if isinstance(arguments, str):
        if settings.tool_arguments == "keep":
            return arguments
        arguments = parsed(arguments, _BROKEN_CALL, f"{where}: arguments")
    if arguments is None or arguments == []:  # of a call without any: "", "null", an empty map
        return {}
    arguments = as_object(arguments)
    if not isinstance(arguments, dict):
        raise ChatError(
            _BROKEN_CALL, f"{where}: expected arguments in an object, found {shown(arguments)}"
        )
    return arguments


def message_list(value: Any, where: str) -> list[Any]:
    """Return the items of a list of messages, which may be JSON text, or an object of lists.

    Such an object has a list for each key of the messages, as `datasets` keeps lists of objects.
    """
    items = parsed(value, "broken messages", where)
    if isinstance(items, dict):
        items = rows_of(items) or items
    if items is None:
        raise ChatError("no such fields", f"{where}: expected a list of messages, found nothing")
    if not isinstance(items, list):
        raise wrong_type(where, "a list of messages", items)
    return items


def rows_of(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the objects that an object of lists holds; [] if it is none."""
    lists = {key: value for key, value in columns.items() if value is not None}
    if not lists or not all(isinstance(value, list) for value in lists.values()):
        return []
    if len(set(map(len, lists.values()))) > 1:
        return []
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


class Turns(NamedTuple):
    """Messages, the weight that each gives, and the parts of them that give their own.

    `unread`: the filled keys that nothing reads, those of parts as `content[].id`. `extras`:
    what templates get of them.
    """

    messages: list[Message]
    weights: list[float | None]
    parts: list[PartWeight]
    unread: set[str]
    extras: Extras


def read_messages(items: Sequence[Any], settings: SftSettings, where: str = "message") -> Turns:
    """Return the messages of a list, and their weights."""
    messages, weights, parts, unread, extras = turns = Turns([], [], [], set(), Extras())
    roles = known_roles(settings.role_names)
    is_renamed = bool(settings.fields or settings.ignore_keys)
    for number, original in enumerate(chat_messages(items, settings, where), 1):
        item = original
        if is_renamed and isinstance(original, dict):
            item = renamed(original, settings, in_message=True)
        message, weight = _plain_message(item, roles), None
        if message is None and (pair := pair_in(item, settings)):
            messages += pair
            weights += [None] * len(pair)
            unread.update(key for key in settings.ignore_keys if is_filled(original.get(key)))
            continue
        is_plain = message is not None and item is original
        if message is None:
            place = f"{where} {number}"
            message, weight = _read_message(item, settings, place, parts, extras.noticed)
        if message["role"] == DROP:
            unread.add(f"role={first_present(item, ROLE_KEYS)}")
            continue
        if not is_plain:
            read = _read_keys(original, settings)
            unread |= _unread_in_message(original, settings, read)
            read = read if item is original else _read_keys(item, settings)
            _add_extras(message, item, read, extras, f"{where} {number}")
        messages.append(message)
        weights.append(weight)
    return turns


def _plain_message(item: Any, roles: Mapping[str, str]) -> Message | None:
    """Return a message of a known role and a text, as nearly all are; the fast path."""
    if type(item) is not dict or len(item) != 2:
        return None
    if "role" in item:
        role, content = item["role"], item.get("content")
    else:
        role, content = item.get("from"), item.get("value")
    if type(content) is not str or type(role) is not str:
        return None
    known = roles.get(role)
    if known is None or known in (CALL_ROLE, DROP):
        return None
    return {"role": known, "content": content}


def _read_message(
    item: Any, settings: SftSettings, where: str, parts: list[PartWeight], noticed: Counts
) -> tuple[Message, float | None]:
    """Return a message and its weight; add the parts that have their own to `parts`.

    Of a message to be left out only the role, `drop`.
    """
    if not isinstance(item, dict):
        raise wrong_type(where, "an object with role and content", item)
    name = first_present(item, ROLE_KEYS)
    role = _read_role(name, settings, where)
    if role == DROP:
        return {"role": DROP}, None
    check_media(item, where)
    content_role, role = role, "assistant" if role == CALL_ROLE else role
    if not trains_role(role, settings):
        item = without_reply_weights(item, settings, where, noticed)
    content = _content_of(item, content_role, settings, where)
    message: Message = {"role": role, "content": content.text}
    reasoning, weights_there = _read_reasoning(item, content.reasoning, settings, where)
    if reasoning is not None:
        message["reasoning_content"] = reasoning
    if calls := _read_all_calls(item, content, settings, where):
        message["tool_calls"] = calls
    _check_role(message, where)
    for key in ("name", "tool_call_id"):
        if (value := item.get(key)) is not None:
            message[key] = text_of(value, f"{where}: {key}")
    weight = message_weight(item, settings, where)
    of_content = _read_details(item, content, settings, where)
    if of_content or weights_there:
        part_weights = (*weights_there, *of_content)
        weight = _weigh_parts(message, weight, part_weights, parts, where)
    return message, weight


def _read_details(
    item: Mapping[str, Any], content: Content, settings: SftSettings, where: str
) -> tuple[GivenWeight, ...]:
    """Return the weights of the parts of a content, or of the spans that `train_detail` lists.

    As in axolotl: `begin_offset` and `end_offset` are characters of the content, the last one
    included, and what is in no span is not trained.
    """
    spans = first_present(item, DETAIL_KEYS)
    if spans is None:
        return content.weights
    where = f"{where}: {filled_key(item, DETAIL_KEYS)}"
    weights: list[GivenWeight] = []
    end = 0
    for span in message_list(spans, where):
        if not isinstance(span, dict):
            raise wrong_type(where, "objects with begin_offset, end_offset and train", span)
        start, stop = span.get("begin_offset"), span.get("end_offset")
        if (
            not isinstance(start, int)
            or not isinstance(stop, int)
            or not end <= start <= stop < len(content.text)
        ):
            raise ChatError(
                PART_WEIGHTS,
                f"{where}: expected begin_offset and end_offset, in order, from {end} to "
                f"{len(content.text) - 1}, left; found {shown(start)}, {shown(stop)}",
            )
        weight = message_weight(span, settings, where)
        weights += [
            GivenWeight("content", end, start, NOT_TRAINED),
            GivenWeight("content", start, stop + 1, weight),
        ]
        end = stop + 1
    return (*weights, GivenWeight("content", end, len(content.text), NOT_TRAINED))


def _weigh_parts(
    message: Message,
    weight: float | None,
    part_weights: Sequence[GivenWeight],
    parts: list[PartWeight],
    where: str,
) -> float | None:
    """Return the weight of a message whose parts may give weights; add those to `parts`.

    If all that the message has comes from parts of one weight, that is the weight of the message.
    """
    factors = {part.weight for part in part_weights}
    if factors == {None}:
        return weight
    n_read = sum(part.stop - part.start for part in part_weights)
    has_all = n_read == len(message["content"]) + len(message.get("reasoning_content", ""))
    with_calls = any(part.key == "tool_calls" for part in part_weights)
    if len(factors) == 1 and has_all and with_calls == ("tool_calls" in message):
        factor = part_weights[0].weight
        return factor if weight is None or factor is None else weight * factor
    for key, start, stop, factor in part_weights:
        if factor is None:
            continue
        if key == "tool_calls":
            raise ChatError(
                PART_WEIGHTS,
                f"{where}: expected tool calls with the weight of their message, found {factor} at "
                "a part: give it to the whole message",
            )
        if start < stop:
            parts.append(PartWeight(message, key, start, stop, factor))
    return weight


def _read_role(name: Any, settings: SftSettings, where: str) -> str:
    if name is not None and not isinstance(name, str):
        raise wrong_type(where, "a role", name)
    role = None if name is None else role_of(name, settings.role_names)
    if role is None:
        known = ", ".join(ROLE_NAMES)
        # The chats beside this one have who asks and who answers, else the run would not be here.
        role = "tool" if is_tool_name(name or "") else ROLE_GAP
        pair = shlex.quote(f"{name}={role}")
        choices = "tool, user, system, assistant" if role == ROLE_GAP else "tool"
        advice = f": say who that is ({choices}; drop leaves it out): --role-names {pair}"
        advice = advice if name else ""
        raise ChatError(
            "unknown role", f"{where}: expected a role of {known}, found {shown(name)}{advice}"
        )
    return role


def _content_of(item: Mapping[str, Any], role: str, settings: SftSettings, where: str) -> Content:
    """Return the content of a message: its refusal, or the calls of a role that has only calls."""
    value = first_present(item, CONTENT_KEYS)
    if is_refusal(item):
        value = item["refusal"]
    if role == "tool":
        return read_result(value, settings, where)
    if role != CALL_ROLE:
        return read_content(value, settings, where)
    reasoning, value = _thought_before(value)
    calls = read_calls(value, settings, where)
    if not calls:
        raise ChatError(_BROKEN_CALL, f"{where}: expected a call, found {shown(value)}")
    return Content(reasoning=reasoning, calls=tuple(calls))


def _thought_before(value: Any) -> tuple[str | None, Any]:
    """Return the reasoning between tags before the JSON of a call, None if none, and the JSON."""
    if isinstance(value, str) and not value.startswith("{"):
        for tags in REASONING_TAGS:
            if halves := split_reasoning(value, tags):
                return halves
    return None, value


def _read_reasoning(
    item: Mapping[str, Any], in_parts: str | None, settings: SftSettings, where: str
) -> tuple[str | None, tuple[GivenWeight, ...]]:
    """Return the reasoning of a message and the weights of its parts.

    It is '' if it is empty, None if there is none.
    """
    reasoning = in_parts
    weights: tuple[GivenWeight, ...] = ()
    for key in REASONING_KEYS:
        if item.get(key) is None:
            continue
        read = read_content(item[key], settings, f"{where}: {key}")
        if read.reasoning is not None or read.calls:
            raise wrong_type(f"{where}: {key}", "text", item[key])
        if reasoning and read.text and reasoning != read.text:
            raise ChatError(
                "contradictory reasoning",
                f"{where}: {key}: expected the reasoning told before, found {shown(read.text)}",
            )
        if not reasoning:
            reasoning = read.text
            weights = tuple(part._replace(key="reasoning_content") for part in read.weights)
    return reasoning, weights


def _read_all_calls(
    item: Mapping[str, Any], content: Content, settings: SftSettings, where: str
) -> list[dict[str, Any]]:
    """Return the calls of a message, from its content or from one of the keys."""
    calls = list(content.calls)
    for key in CALL_KEYS:
        others = read_calls(item.get(key), settings, f"{where}: {key}")
        if calls and others:
            raise ChatError(
                _BROKEN_CALL,
                f"{where}: expected calls in one of content, {', '.join(CALL_KEYS)}, found several",
            )
        calls = calls or others
    return calls


def _check_role(message: Message, where: str) -> None:
    """Refuse a message with a part that templates would leave out."""
    reasoning, calls = message.get("reasoning_content"), message.get("tool_calls")
    if message["role"] != "assistant" and (reasoning or calls):
        raise ChatError(
            "wrong role",
            f"{where}: expected {'tool calls' if calls else 'reasoning'} of the assistant only, "
            f"found them at role {message['role']}",
        )


def _add_extras(
    message: Message, item: Mapping[str, Any], read: frozenset[str], extras: Extras, where: str
) -> None:
    """Add the keys of an item that are not `read` to its message, for the template.

    A message that has nothing else is refused later, if the template does not take them.
    """
    keys = [key for key in item if key not in read and key not in _NEVER_HANDED]
    if keys and is_refusal(item):
        keys.remove("refusal")
    handed = {key: value for key in keys if (value := for_template(item[key])) is not None}
    message |= handed
    extras.keys |= handed.keys()
    extras.has_calls |= "tool_calls" in message
    has_content = any(key in item for key in CONTENT_KEYS)
    if message.get("reasoning_content") or message.get("tool_calls") or has_content:
        return
    if is_refusal(item):
        return
    error = ChatError(
        "no such fields", f"{where}: expected content, found {shown_keys(list(item))}"
    )
    if not handed:
        raise error
    extras.bare.append((frozenset(handed), error))


_OTHER_NAMES = {
    **dict.fromkeys((*PROMPT_KEYS, "instruction", "input"), "user"),
    **dict.fromkeys(ANSWER_KEYS, "assistant"),
}
_ORDER = ("system", "user", "assistant")


def pair_in(item: Any, settings: SftSettings) -> list[Message]:
    """Return the messages of an item such as {"human": "…", "assistant": "…"}; [] if it is none.

    All its keys are roles, once each; there may be a system text, and texts to be left out.
    """
    texts: dict[str, str] = {}
    for key, text in item.items() if isinstance(item, dict) else ():
        role = role_of(key, settings.role_names) or _OTHER_NAMES.get(key.lower())
        if role is None:
            return []
        if text is None or role == DROP:
            continue
        if role not in _ORDER or role in texts or not isinstance(text, str):
            return []
        texts[role] = text
    if "user" not in texts or "assistant" not in texts:
        return []
    turns = [(role, texts[role]) for role in _ORDER if role in texts]
    return [{"role": role, "content": text} for role, text in turns if text or role != "system"]


def check_media(item: Mapping[str, Any], where: str) -> None:
    """Refuse a record or message with media: a reply to an image makes no sense without it."""
    if key := filled_key(item, MEDIA_KEYS):
        raise ChatError(
            f"{key.removesuffix('s')}s",
            f"{where}: expected text alone, found {key}, {shown(item[key])}: "
            f"--ignore-keys {key} trains on the text as it stands",
        )


_READ_HERE = frozenset(
    ("name", "tool_call_id", "tools", *REASONING_KEYS, *CALL_KEYS, *SWITCH_KEYS, *DETAIL_KEYS)
)
_NO_PARTS = frozenset(("tools", *CALL_KEYS, *DETAIL_KEYS))
_READ_IN_PART = frozenset(("type", *PART_KEYS, *SWITCH_KEYS))


_NEVER_HANDED = frozenset(("with_input", *ROLE_KEYS, *CONTENT_KEYS, *MEDIA_KEYS))
"""Keys of messages that only tokmill sets, and those that are empty if nothing has read them."""


def _read_keys(item: Mapping[str, Any], settings: SftSettings) -> frozenset[str]:
    """Return the keys of a message that are read here."""
    named = known_names(settings.fields, in_message=True)
    own = {filled_key(item, ROLE_KEYS), filled_key(item, CONTENT_KEYS)}
    return frozenset((_READ_HERE | own) - {*settings.ignore_keys} | named.keys())


def _unread_in_message(
    item: Mapping[str, Any], settings: SftSettings, read: frozenset[str]
) -> set[str]:
    """Return the filled keys of a message and its parts, by its names, that are not `read`."""
    ignored = {*settings.ignore_keys}
    unread = {key for key in item if key not in read and is_filled(item[key])}
    if "refusal" not in ignored and is_refusal(item):
        unread.discard("refusal")
    for key in item.keys() & read - _NO_PARTS:
        parts = item[key] if isinstance(item[key], list) else ()
        unread |= {
            f"{key}[].{name}"
            for part in parts
            if isinstance(part, dict) and part.get("type") in _PARTS  # others are calls
            for name in part
            if name not in _READ_IN_PART and name != part["type"] and is_filled(part[name])
        }
    return unread
