"""Records of one prompt and answer, an Alpaca instruction, or a text, to conversations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.chat.conversation import ChatError, Conversation
from tokmill.chat.reading.content import read_tools
from tokmill.chat.reading.messages import Turns, read_messages
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
"""The text between an instruction and its input, if neither is empty. Stanford's heading precedes
every input, also after an empty instruction; with template alpaca, `auto` means Stanford's."""


def read_pair(record: Mapping[str, Any], settings: SftSettings) -> Conversation:
    """Return the conversation of a prompt, which may be empty, and an answer.

    A context is added to the prompt as an input to an instruction. If the record also has an
    instruction, the context belongs to that, and neither is read.
    """
    prompt = text_of(first_present(record, PROMPT_KEYS), "prompt")
    context = "" if is_filled(record.get("instruction")) else context_of(record)
    return _with_answer(_prompt(prompt, context, settings), record, settings)


def read_alpaca(record: Mapping[str, Any], settings: SftSettings) -> Conversation:
    """Return the conversation of an instruction, its input and its output.

    With `instruction = "stanford"`, the message gets `with_input` if it has an input: template
    alpaca then writes another preamble.
    """
    instruction = text_of(record.get("instruction"), "instruction")
    return _with_answer(_prompt(instruction, context_of(record), settings), record, settings)


def read_text(record: Mapping[str, Any], _settings: SftSettings) -> Conversation:
    """Return a text as one message of the assistant, so that all of it is trained."""
    text = record.get("text")
    if text is None:
        raise no_such_fields("text", record)
    return Conversation([_message("assistant", text_of(text, "text"))], [None], is_text=True)


def no_such_fields(expected: str, record: Mapping[str, Any]) -> ChatError:
    """Return the error for a record that lacks a field."""
    return ChatError(
        "no such fields", f"record: expected {expected}, found {shown_keys(list(record))}"
    )


def _with_answer(user: Message, record: Mapping[str, Any], settings: SftSettings) -> Conversation:
    """Return the conversation of a prompt and its answer, after system message and history."""
    answer = first_present(record, ANSWER_KEYS)
    if answer is None:
        raise no_such_fields(" or ".join(ANSWER_KEYS), record)
    reply = _message("assistant", text_of(answer, "answer")) | reasoning_of(record)
    system = system_of(record)
    history = history_of(record, settings)
    return Conversation(
        [*system, *history.messages, user, reply],
        [*([None] * len(system)), *history.weights, None, None],
        read_tools(record),
        parts=history.parts,
    )


def _prompt(instruction: str, context: str, settings: SftSettings) -> Message:
    join = JOINS[settings.instruction]
    if settings.instruction == STANFORD and context:
        return {**_message("user", instruction + join + context), "with_input": True}
    return _message("user", join.join(filter(None, (instruction, context))))


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}


_SYSTEM, _HISTORY, _REASONING = map(frozenset, (SYSTEM_KEYS, HISTORY_KEYS, REASONING_KEYS))
"""One set operation on a record costs less than a look-up of each name."""


def system_of(record: Mapping[str, Any]) -> list[Message]:
    """Return the system message of a record, as a list of one or none."""
    if _SYSTEM.isdisjoint(record):
        return []
    key = filled_key(record, SYSTEM_KEYS)
    system = text_of(record[key], key) if key else ""
    return [{"role": "system", "content": system}] if system else []


def context_of(record: Mapping[str, Any]) -> str:
    """Return the input of an instruction or a prompt; '' if there is none."""
    return _optional_text(record, INPUT_KEYS)


def reasoning_of(record: Mapping[str, Any]) -> Message:
    """Return the reasoning of an answer as a part of its message; {} if there is none."""
    if _REASONING.isdisjoint(record):
        return {}
    reasoning = _optional_text(record, REASONING_KEYS)
    return {"reasoning_content": reasoning} if reasoning else {}


def history_of(record: Mapping[str, Any], settings: SftSettings) -> Turns:
    """Return earlier turns, pairs or messages, with their weights; they may be JSON text."""
    if _HISTORY.isdisjoint(record):
        return Turns([], [], [])
    key = filled_key(record, HISTORY_KEYS)
    try:
        turns: Sequence[Any] | None = parsed(record[key], "broken history", key) if key else None
    except ChatError as error:  # such as an essay under the key history
        raise _with_advice(error, key) from None
    if turns is None:
        return Turns([], [], [])
    if not isinstance(turns, list):
        raise _with_advice(wrong_type(key, "a list of pairs or messages", turns), key)
    if turns and all(isinstance(turn, dict) for turn in turns):
        return read_messages(turns, settings, "history, message")
    messages: list[Message] = []
    for number, pair in enumerate(turns, 1):
        where = f"{key}, pair {number}"
        if not isinstance(pair, list) or len(pair) != 2:
            raise wrong_type(where, "a list of a question and its answer", pair)
        messages += [{"role": "user", "content": text_of(pair[0], where)}]
        messages += [{"role": "assistant", "content": text_of(pair[1], where)}]
    return Turns(messages, [None] * len(messages), [])


def _optional_text(record: Mapping[str, Any], keys: Sequence[str]) -> str:
    key = filled_key(record, keys)
    if not key:
        return ""
    try:
        return text_of(record[key], key)
    except ChatError as error:
        raise _with_advice(error, key) from None


def _with_advice(error: ChatError, key: str) -> ChatError:
    return ChatError(error.reason, f"{error.message}: --ignore-keys {key} leaves it out")
