"""What stands beside the turns of a record: system message, history, context, reasoning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.chat.conversation import ChatError
from tokmill.chat.keys import (
    HISTORY_KEYS,
    INPUT_KEYS,
    REASONING_KEYS,
    SYSTEM_KEYS,
)
from tokmill.chat.messages import read_messages
from tokmill.chat.values import filled_key, parsed, text_of, wrong_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokmill.chat.conversation import Message
    from tokmill.settings.schema import SftSettings


_SYSTEM, _HISTORY, _REASONING = map(frozenset, (SYSTEM_KEYS, HISTORY_KEYS, REASONING_KEYS))
"""Asked first: one look at the keys of a record costs less than one look for each name."""


def system_of(record: Mapping[str, Any]) -> list[Message]:
    """Return the system message that stands beside a record's turns, as a list of one or none."""
    if _SYSTEM.isdisjoint(record):
        return []
    key = filled_key(record, SYSTEM_KEYS)
    system = text_of(record[key], key) if key else ""
    return [{"role": "system", "content": system}] if system else []


def context_of(record: Mapping[str, Any]) -> str:
    """Return the text that belongs to an instruction or a question; '' where there is none."""
    return _optional_text(record, INPUT_KEYS)


def reasoning_of(record: Mapping[str, Any]) -> Message:
    """Return the reasoning beside a flat record's answer, as that message has it; {} if none."""
    if _REASONING.isdisjoint(record):
        return {}
    reasoning = _optional_text(record, REASONING_KEYS)
    return {"reasoning_content": reasoning} if reasoning else {}


def history_of(
    record: Mapping[str, Any], settings: SftSettings
) -> tuple[list[Message], list[float | None]]:
    """Return earlier turns, pairs or messages, with their weights; CSV has them as JSON text.

    Raises:
        ChatError: "broken history" or "wrong type"; or as `read_messages` does.
    """
    if _HISTORY.isdisjoint(record):
        return [], []
    key = filled_key(record, HISTORY_KEYS)
    try:
        turns: Sequence[Any] | None = parsed(record[key], "broken history", key) if key else None
    except ChatError as error:  # such as a text on history
        raise _not_wanted(error, key) from None
    if turns is None:
        return [], []
    if not isinstance(turns, list):
        raise _not_wanted(wrong_type(key, "a list of pairs or messages", turns), key)
    if turns and all(isinstance(turn, dict) for turn in turns):
        return read_messages(turns, settings, "history, message")
    messages: list[Message] = []
    for number, pair in enumerate(turns, 1):
        where = f"{key}, pair {number}"
        if not isinstance(pair, list) or len(pair) != 2:
            raise wrong_type(where, "a list of a question and its answer", pair)
        messages += [{"role": "user", "content": text_of(pair[0], where)}]
        messages += [{"role": "assistant", "content": text_of(pair[1], where)}]
    return messages, [None] * len(messages)


def _optional_text(record: Mapping[str, Any], keys: Sequence[str]) -> str:
    key = filled_key(record, keys)
    if not key:
        return ""
    try:
        return text_of(record[key], key)
    except ChatError as error:
        raise _not_wanted(error, key) from None


def _not_wanted(error: ChatError, key: str) -> ChatError:
    return ChatError(error.reason, f"{error.message}: --ignore-keys {key} leaves it out")
