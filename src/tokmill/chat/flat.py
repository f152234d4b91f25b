"""Flat records to conversations: prompt and answer, an Alpaca instruction, a text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.chat.beside import context_of, history_of, reasoning_of, system_of
from tokmill.chat.conversation import ChatError, Conversation
from tokmill.chat.keys import ANSWER_KEYS, PROMPT_KEYS, is_filled
from tokmill.chat.tools import read_tools
from tokmill.chat.values import first_present, shown_keys, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokmill.chat.conversation import Message
    from tokmill.settings.schema import SftSettings

STANFORD = "stanford"
JOINS = {"auto": "\n", "newline": "\n", "blank-line": "\n\n", STANFORD: "\n\n### Input:\n"}
"""What stands between an instruction and its input, neither of them empty. Stanford's heading
stands before every input, behind an empty instruction too; template alpaca makes it of `auto`."""


def read_pair(record: Mapping[str, Any], settings: SftSettings) -> Conversation:
    """Return the conversation of a prompt, which may be empty, and an answer.

    A context belongs to the prompt as an input to its instruction; beside an instruction of its
    own it belongs to that one, which is not read.

    Raises:
        ChatError: "no such fields", "wrong type" or "broken tools".
    """
    prompt = text_of(first_present(record, PROMPT_KEYS), "prompt")
    context = "" if is_filled(record.get("instruction")) else context_of(record)
    return _flat(_asked(prompt, context, settings), record, settings)


def read_alpaca(record: Mapping[str, Any], settings: SftSettings) -> Conversation:
    """Return the conversation of an instruction, its input and output, behind system and history.

    With `instruction = "stanford"` the last user message also says `with_input` where it has one,
    for which template alpaca has other words at its beginning.

    Raises:
        ChatError: "no such fields", "wrong type" or "broken tools".
    """
    instruction = text_of(record.get("instruction"), "instruction")
    return _flat(_asked(instruction, context_of(record), settings), record, settings)


def read_text(record: Mapping[str, Any], _settings: SftSettings) -> Conversation:
    """Return a text as one message of the assistant: all of it is trained.

    Raises:
        ChatError: "no such fields" or "wrong type".
    """
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
