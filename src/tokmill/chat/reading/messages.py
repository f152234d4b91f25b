"""Messages of a record, in OpenAI's form, ShareGPT's or as pairs, to the form of templates.

A message has text, typed parts, reasoning and tool calls; a conversation has tools.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from tokmill.chat.control_strings import REASONING_TAGS
from tokmill.chat.conversation import OF_CALL, OF_CALLS, PART_WEIGHTS, ChatError, Extras, PartWeight
from tokmill.chat.names import (
    ANSWER_KEYS,
    CALL_KEYS,
    CALL_ROLE,
    CONTENT_KEYS,
    DETAIL_KEYS,
    DROP,
    MEDIA_KEYS,
    PROMPT_KEYS,
    REASONING_KEYS,
    ROLE_GAP,
    ROLE_KEYS,
    ROLE_NAMES,
    SWITCH_KEYS,
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
    rows_of,
    shown,
    shown_keys,
    text_of,
    wrong_type,
)
from tokmill.chat.reading.agents import chat_messages
from tokmill.chat.reading.content import (
    PARTS,
    READ_IN_PART,
    Content,
    GivenWeight,
    read_content,
    read_result,
)
from tokmill.chat.reading.table_nulls import for_template
from tokmill.chat.reading.tools import BROKEN_CALL, read_calls
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
    roles = known_roles(settings.role_names)
    is_renamed = bool(settings.fields or settings.ignore_keys)
    plain = None if is_renamed else _plain_messages(items, roles)
    if plain is not None:
        return Turns(plain, [None] * len(plain), [], set(), Extras())
    messages, weights, parts, unread, extras = turns = Turns([], [], [], set(), Extras())
    for number, original in enumerate(chat_messages(items, settings, where), 1):
        item = original
        if is_renamed and isinstance(original, dict):
            item = renamed(original, settings, in_message=True)
        message, weight = _plain_message(item, roles), None
        if message is not None and item is original:
            messages.append(message)
            weights.append(None)
            continue
        if message is None and (pair := pair_in(item, settings)):
            messages += pair
            weights += [None] * len(pair)
            unread.update(key for key in settings.ignore_keys if is_filled(original.get(key)))
            continue
        place = f"{where} {number}"
        if message is None:
            message, weight = _read_message(item, settings, place, parts, extras.noticed)
        if message["role"] == DROP:
            unread.add(f"role={first_present(item, ROLE_KEYS)}")
            continue
        read = _read_keys(original, settings)
        unread |= _unread_in_message(original, settings, read)
        read = read if item is original else _read_keys(item, settings)
        _add_extras(message, item, read, extras, place)
        messages.append(message)
        weights.append(weight)
    unread.update(f"{OF_CALLS}{key}" for key in extras.of_calls)
    return turns


def _plain_messages(items: Sequence[Any], roles: Mapping[str, str]) -> list[Message] | None:
    """Return messages of known roles and texts, as nearly all are; None if one says more."""
    messages = []
    for item in items:
        message = _plain_message(item, roles)
        if message is None:
            return None
        messages.append(message)
    return messages


def _plain_message(item: Any, roles: Mapping[str, str]) -> Message | None:
    """Return a message of a known role and a text; None if it says more."""
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
        raise ChatError(BROKEN_CALL, f"{where}: expected a call, found {shown(value)}")
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
                BROKEN_CALL,
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
    for call in message.get("tool_calls", ()):
        extras.of_calls |= (call.keys() | call["function"].keys()) - OF_CALL
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


_NEVER_HANDED = frozenset(("with_input", *ROLE_KEYS, *CONTENT_KEYS, *MEDIA_KEYS))
"""Keys of messages that only tokmill sets, and those that are empty if nothing has read them."""


def _read_keys(item: Mapping[str, Any], settings: SftSettings) -> frozenset[str]:
    """Return the keys of a message that are read here."""
    role, content = filled_key(item, ROLE_KEYS), filled_key(item, CONTENT_KEYS)
    return _read_beside(role, content, settings.fields, settings.ignore_keys)


@lru_cache(maxsize=256)
def _read_beside(
    role: str, content: str, fields: tuple[str, ...], ignored: tuple[str, ...]
) -> frozenset[str]:
    """Return the keys of a message with a role and a content under these keys."""
    named = known_names(fields, in_message=True)
    return frozenset(_READ_HERE.union((role, content)).difference(ignored).union(named))


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
            if isinstance(part, dict) and part.get("type") in PARTS  # others are calls
            for name in part
            if name not in READ_IN_PART and name != part["type"] and is_filled(part[name])
        }
    return unread
