"""Messages of a record, in OpenAI's form, ShareGPT's or as pairs, to the form of templates."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from tokmill.chat.conversation import PART_WEIGHTS, ChatError, PartWeight
from tokmill.chat.reading.content import NO_WEIGHTS, Content, read_calls, read_content
from tokmill.chat.reading.names import (
    ANSWER_KEYS,
    CALL_KEYS,
    CALL_ROLE,
    CONTENT_KEYS,
    PROMPT_KEYS,
    REASONING_KEYS,
    ROLE_KEYS,
    ROLE_NAMES,
    is_refusal,
    known_role,
    known_roles,
    of_message,
    role_of,
)
from tokmill.chat.reading.unsuitable import check_media
from tokmill.chat.reading.values import first_present, parsed, quoted, shown, shown_keys, wrong_type
from tokmill.chat.weights import message_weight

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokmill.chat.conversation import Message
    from tokmill.chat.reading.content import GivenWeight
    from tokmill.settings.sft import SftSettings


def message_list(value: Any, where: str) -> list[Any]:
    """Return the items of a list of messages, which may be JSON text."""
    if isinstance(value, list):
        return value
    items = parsed(value, "broken messages", where)
    if items is None:
        raise ChatError("no such fields", f"{where}: expected a list of messages, found nothing")
    if not isinstance(items, list):
        raise wrong_type(where, "a list of messages", items)
    return items


class Turns(NamedTuple):
    """Messages, the weight that each gives, and the parts of them that give their own."""

    messages: list[Message]
    weights: list[float | None]
    parts: list[PartWeight]


def read_messages(items: Sequence[Any], settings: SftSettings, where: str = "message") -> Turns:
    """Return the messages of a list, and their weights."""
    messages, weights, parts = turns = Turns([], [], [])
    roles = known_roles(settings.role_names)
    is_renamed = bool(settings.fields or settings.ignore_keys)
    for number, item in enumerate(items, 1):
        if is_renamed and isinstance(item, dict):
            item = of_message(item, settings)
        message, weight = _plain_message(item, roles), None
        if message is None:
            if pair := pair_in(item, settings):
                messages += pair
                weights += [None] * len(pair)
                continue
            message, weight = _read_message(item, settings, f"{where} {number}", parts)
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
    return None if known is None or known == CALL_ROLE else {"role": known, "content": content}


def _read_message(
    item: Any, settings: SftSettings, where: str, parts: list[PartWeight]
) -> tuple[Message, float | None]:
    """Return a message and its weight; add the parts that have their own to `parts`."""
    if not isinstance(item, dict):
        raise wrong_type(where, "an object with role and content", item)
    check_media(item, where)
    name = first_present(item, ROLE_KEYS)
    role = _read_role(name, settings, where)
    content = _content_of(item, role, settings, where)
    role = "assistant" if role == CALL_ROLE else role
    message: Message = {"role": role, "content": content.text}
    reasoning, weights_there = _read_reasoning(item, content.reasoning, settings, where)
    if reasoning is not None:
        message["reasoning_content"] = reasoning
    if calls := _read_all_calls(item, content, settings, where):
        message["tool_calls"] = calls
    _check_whole(item, message, where)
    message.update(_read_names(item, where))
    weight = message_weight(item, settings, where)
    if content.weights or weights_there:
        given = (*weights_there, *content.weights)
        weight = _weigh_parts(message, weight, given, parts, where)
    return message, weight


def _weigh_parts(
    message: Message,
    weight: float | None,
    given: Sequence[GivenWeight],
    parts: list[PartWeight],
    where: str,
) -> float | None:
    """Return the weight of a message whose parts may give weights; add those to `parts`.

    If all that the message has comes from parts of one weight, that is the weight of the message.
    """
    found = {part.weight for part in given}
    if found == {None}:
        return weight
    n_read = sum(part.stop - part.start for part in given)
    has_all = n_read == len(message["content"]) + len(message.get("reasoning_content", ""))
    with_calls = any(part.key == "tool_calls" for part in given)
    if len(found) == 1 and has_all and with_calls == ("tool_calls" in message):
        factor = given[0].weight
        return factor if weight is None or factor is None else weight * factor
    for key, start, stop, factor in given:
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
    role = None if name is None else role_of(name, settings)
    if role is None:
        known = ", ".join(ROLE_NAMES)
        # Who speaks first is seldom the one who answers, but in a completion.
        is_first = where.endswith("message 1") and not where.startswith("completion")
        role_here = "user" if is_first else "assistant"
        advice = f": say who that is: --role-names {quoted(f'{name}={role_here}')}" if name else ""
        raise ChatError(
            "unknown role", f"{where}: expected a role of {known}, found {shown(name)}{advice}"
        )
    return role


def _content_of(item: Mapping[str, Any], role: str, settings: SftSettings, where: str) -> Content:
    value = first_present(item, CONTENT_KEYS)
    if is_refusal(item):
        value = item["refusal"]
    if role != CALL_ROLE:
        return read_content(value, settings, where)
    calls = read_calls(value, settings, where)
    if not calls:
        raise ChatError("broken tool call", f"{where}: expected a call, found {shown(value)}")
    return Content(calls=tuple(calls))


def _read_reasoning(
    item: Mapping[str, Any], in_parts: str | None, settings: SftSettings, where: str
) -> tuple[str | None, tuple[GivenWeight, ...]]:
    """Return the reasoning of a message and the weights of its parts.

    It is '' if it is empty, None if there is none.
    """
    found, weights = in_parts, NO_WEIGHTS
    for key in REASONING_KEYS:
        value = item.get(key)
        if value is None:
            continue
        given = NO_WEIGHTS
        if isinstance(value, list):
            read = read_content(value, settings, f"{where}: {key}")
            if read.reasoning is None and not read.calls:
                value = read.text
                given = tuple(part._replace(key="reasoning_content") for part in read.weights)
        if not isinstance(value, str):
            raise wrong_type(f"{where}: {key}", "text", value)
        if found and value and found != value:
            raise ChatError(
                "contradictory reasoning",
                f"{where}: {key}: expected the reasoning told before, found {shown(value)}",
            )
        if not found:
            found, weights = value, given
    return found, weights


def _read_all_calls(
    item: Mapping[str, Any], content: Content, settings: SftSettings, where: str
) -> list[dict[str, Any]]:
    """Return the calls of a message, from its content or from one of the keys."""
    groups = [list(content.calls)] + [
        read_calls(item[key], settings, f"{where}: {key}")
        for key in CALL_KEYS
        if item.get(key) is not None
    ]
    groups = [group for group in groups if group]
    if len(groups) > 1:
        raise ChatError(
            "broken tool call",
            f"{where}: expected calls in one of content, {', '.join(CALL_KEYS)}, found several",
        )
    return groups[0] if groups else []


def _check_whole(item: Mapping[str, Any], message: Message, where: str) -> None:
    """Refuse a message of which templates would leave out a part."""
    reasoning, calls = message.get("reasoning_content"), message.get("tool_calls")
    if message["role"] != "assistant" and (reasoning or calls):
        raise ChatError(
            "wrong role",
            f"{where}: expected {'tool calls' if calls else 'reasoning'} of the assistant only, "
            f"found them at role {message['role']}",
        )
    has_content = any(key in item for key in CONTENT_KEYS)
    if not (reasoning or calls or has_content or is_refusal(item)):
        raise ChatError(
            "no such fields", f"{where}: expected content, found {shown_keys(list(item))}"
        )


def _read_names(item: Mapping[str, Any], where: str) -> Message:
    names: Message = {}
    for key in ("name", "tool_call_id"):
        value = item.get(key)
        if value is not None:
            if not isinstance(value, str):
                raise wrong_type(f"{where}: {key}", "text", value)
            names[key] = value
    return names


_OTHER_NAMES = {
    **dict.fromkeys((*PROMPT_KEYS, "instruction", "input"), "user"),
    **dict.fromkeys(ANSWER_KEYS, "assistant"),
}
_ORDER = ("system", "user", "assistant")


def pair_in(item: Any, settings: SftSettings) -> list[Message]:
    """Return the messages of an item such as {"human": "…", "assistant": "…"}; [] if it is none.

    All its keys are roles, once each; there may be a system text.
    """
    roles = _pair_roles(tuple(item), settings.role_names) if isinstance(item, dict) else ()
    texts: dict[str, str] = {}
    for role, text in zip(roles, item.values() if roles else (), strict=True):
        if text is None:
            continue
        if role not in _ORDER or role in texts or not isinstance(text, str):
            return []
        texts[role] = text
    if "user" not in texts or "assistant" not in texts:
        return []
    turns = [(role, texts[role]) for role in _ORDER if role in texts]
    return [{"role": role, "content": text} for role, text in turns if text or role != "system"]


@lru_cache(maxsize=256)
def _pair_roles(keys: tuple[str, ...], role_names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the role that each key names; () if one names none, as in nearly all messages."""
    roles = [known_role(key, role_names) or _OTHER_NAMES.get(key.lower(), "") for key in keys]
    return tuple(roles) if all(roles) else ()
