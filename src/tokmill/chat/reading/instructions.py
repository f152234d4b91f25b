"""Instruction records to conversations: prompt and answer, Alpaca, a text; with history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.chat.conversation import ChatError, Conversation
from tokmill.chat.reading.content import read_tools
from tokmill.chat.reading.messages import read_messages
from tokmill.chat.reading.names import (
    ANSWER_KEYS,
    HISTORY_KEYS,
    INPUT_KEYS,
    PROMPT_KEYS,
    REASONING_KEYS,
    SYSTEM_KEYS,
    is_filled,
)
from tokmill.chat.reading.values import (
    filled_key,
    first_present,
    parsed,
    shown_keys,
    text_of,
    wrong_type,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokmill.chat.conversation import Message
    from tokmill.settings.sft import SftSettings

STANFORD = "stanford"
JOINS = {"auto": "\n", "newline": "\n", "blank-line": "\n\n", STANFORD: "\n\n### Input:\n"}
"""What stands between an instruction and its input, neither of them empty. Stanford's heading
stands before every input, behind an empty instruction too; template alpaca makes it of `auto`."""


def read_pair(record: Mapping[str, Any], settings: SftSettings) -> Conversation:
    """Return the conversation of a prompt, which may be empty, and an answer.

    A context belongs to the prompt as an input to its instruction; beside an instruction of its
    own it belongs to that one, which is not read.
    """
    prompt = text_of(first_present(record, PROMPT_KEYS), "prompt")
    context = "" if is_filled(record.get("instruction")) else context_of(record)
    return _flat(_asked(prompt, context, settings), record, settings)


def read_alpaca(record: Mapping[str, Any], settings: SftSettings) -> Conversation:
    """Return the conversation of an instruction, its input and output, behind system and history.

    With `instruction = "stanford"` the last user message also says `with_input` where it has one,
    for which template alpaca has other words at its beginning.
    """
    instruction = text_of(record.get("instruction"), "instruction")
    return _flat(_asked(instruction, context_of(record), settings), record, settings)


def read_text(record: Mapping[str, Any], _settings: SftSettings) -> Conversation:
    """Return a text as one message of the assistant: all of it is trained."""
    text = record.get("text")
    if text is None:
        raise no_such_fields("text", record)
    return Conversation([_said("assistant", text_of(text, "text"))], [None], is_text=True)


def no_such_fields(expected: str, record: Mapping[str, Any]) -> ChatError:
    """Return the error for a record that lacks a field."""
    return ChatError(
        "no such fields", f"record: expected {expected}, found {shown_keys(list(record))}"
    )


def _flat(user: Message, record: Mapping[str, Any], settings: SftSettings) -> Conversation:
    """Return the conversation of one question and its answer, behind system and history."""
    answer = first_present(record, ANSWER_KEYS)
    if answer is None:
        raise no_such_fields(" or ".join(ANSWER_KEYS), record)
    reply = _said("assistant", text_of(answer, "answer")) | reasoning_of(record)
    system = system_of(record)
    history, weights = history_of(record, settings)
    return Conversation(
        [*system, *history, user, reply],
        [*([None] * len(system)), *weights, None, None],
        read_tools(record),
    )


def _asked(instruction: str, context: str, settings: SftSettings) -> Message:
    join = JOINS[settings.instruction]
    if settings.instruction == STANFORD and context:
        return {**_said("user", instruction + join + context), "with_input": True}
    return _said("user", join.join(filter(None, (instruction, context))))


def _said(role: str, content: str) -> Message:
    return {"role": role, "content": content}


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
    """Return earlier turns, pairs or messages, with their weights; CSV has them as JSON text."""
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
