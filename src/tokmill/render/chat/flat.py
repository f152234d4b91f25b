"""Flat records to conversations: prompt and answer, an Alpaca instruction, a text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.render.chat.conversation import ChatError, Conversation
from tokmill.render.chat.tools import read_tools
from tokmill.render.chat.values import (
    first_present,
    parsed,
    shown_keys,
    system_of,
    text_of,
    wrong_type,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokmill.config import SftSettings
    from tokmill.render.chat.conversation import Message

PROMPT_KEYS = ("prompt", "question", "query")
ANSWER_KEYS = ("response", "completion", "answer", "output")
INPUT_KEYS = ("input", "context")
"""Names of one field each: the first that is not null is it."""

STANFORD = "stanford"
JOINS = {"auto": "\n", "newline": "\n", "blank-line": "\n\n", STANFORD: "\n\n### Input:\n"}
"""What stands between an instruction and its input, neither of them empty. Stanford's heading
stands before every input, behind an empty instruction too; template alpaca makes it of `auto`."""


def read_pair(record: Mapping[str, Any], _settings: SftSettings) -> Conversation:
    """Give the conversation of a prompt, which may be empty, and an answer.

    Raises:
        ChatError: "no such fields", "wrong type" or "broken tools".
    """
    prompt = text_of(first_present(record, PROMPT_KEYS), "prompt")
    answer = _answer(record)
    return _flat([*_system(record), _said("user", prompt), _said("assistant", answer)], record)


def read_alpaca(record: Mapping[str, Any], settings: SftSettings) -> Conversation:
    """Give the conversation of an instruction, its input and output, behind system and history.

    With `instruction = "stanford"` the last user message also says `with_input` where it has one,
    for which template alpaca has other words at its beginning.

    Raises:
        ChatError: "no such fields", "wrong type" or "broken tools".
    """
    instruction = text_of(record.get("instruction"), "instruction")
    context = text_of(first_present(record, INPUT_KEYS), "input")
    join = JOINS[settings.instruction]
    if settings.instruction == STANFORD and context:
        user: Message = {**_said("user", instruction + join + context), "with_input": True}
    else:
        user = _said("user", join.join(filter(None, (instruction, context))))
    history = _history(record.get("history"))
    return _flat([*_system(record), *history, user, _said("assistant", _answer(record))], record)


def read_text(record: Mapping[str, Any], _settings: SftSettings) -> Conversation:
    """Give a text as one message of the assistant: all of it is trained.

    Raises:
        ChatError: "no such fields" or "wrong type".
    """
    text = record.get("text")
    if text is None:
        raise no_such_fields("text", record)
    return Conversation([_said("assistant", text_of(text, "text"))], [None])


def no_such_fields(expected: str, record: Mapping[str, Any]) -> ChatError:
    """Give the error for a record that lacks a field."""
    return ChatError(
        "no such fields", f"record: expected {expected}, found {shown_keys(list(record))}"
    )


def _flat(messages: list[Message], record: Mapping[str, Any]) -> Conversation:
    return Conversation(messages, [None] * len(messages), read_tools(record))


def _said(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def _answer(record: Mapping[str, Any]) -> str:
    answer = first_present(record, ANSWER_KEYS)
    if answer is None:
        raise no_such_fields(" or ".join(ANSWER_KEYS), record)
    return text_of(answer, "answer")


def _system(record: Mapping[str, Any]) -> list[Message]:
    system = system_of(record)
    return [_said("system", system)] if system else []


def _history(value: Any) -> list[Message]:
    """Give the turns of earlier pairs; CSV has them as JSON text."""
    pairs: Sequence[Any] | None = parsed(value, "broken history", "history")
    if pairs is None:
        return []
    if not isinstance(pairs, list):
        raise wrong_type("history", "a list of pairs", pairs)
    messages = []
    for number, pair in enumerate(pairs, 1):
        where = f"history, pair {number}"
        if not isinstance(pair, list) or len(pair) != 2:
            raise wrong_type(where, "a list of a question and its answer", pair)
        messages += [_said("user", text_of(pair[0], where))]
        messages += [_said("assistant", text_of(pair[1], where))]
    return messages
