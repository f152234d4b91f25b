"""Assistant messages in a row: calls belong to the turn that they stand in.

Some formats give each call a message of its own: ms-swift's `tool_call`, ShareGPT's
`function_call`, a text and behind it a message with calls alone. Written as turns of their own, the
end of turn behind each would be trained, and the model would learn to stop before its next call.

    assistant  I look.                     assistant  I look.
    tool_call  w("Rome")         read as              w("Rome"), w("Oslo")
    tool_call  w("Oslo")                   tool       …

A text behind a reply is a turn of its own, as templates write it, and counted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tokmill.rendering.fields import is_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokmill.chat.conversation import Conversation, Counts, Message

JOINED = "messages with tool calls alone joined with the reply before them"
IN_A_ROW = "replies right behind another one, written as turns of their own"


class Joined(NamedTuple):
    """A conversation, and of each of its messages the number that it had before."""

    conversation: Conversation
    numbers: Sequence[int]


def has_replies_in_row(conversation: Conversation) -> bool:
    """Return whether a message of the assistant follows another one."""
    before = ""
    for message in conversation.messages:
        role = message["role"]
        if role == "assistant" and before == "assistant":
            return True
        before = role
    return False


def with_joined_calls(conversation: Conversation, counts: Counts) -> Joined:
    """Return a conversation whose messages with calls alone are joined with replies before them.

    Adds to `counts` how many were joined, and how many replies still follow another one.
    """
    roles = [message["role"] for message in conversation.messages]
    messages: list[Message] = []
    weights: list[float | None] = []
    numbers: list[int] = []
    for i, message in enumerate(conversation.messages):
        weight = conversation.weights[i]
        if roles[i] == "assistant" and i and roles[i - 1] == "assistant":
            reply = messages[-1]
            if _belongs_to(message, reply) and _is_alike(weight, weights[-1]):
                calls = [*reply.get("tool_calls", ()), *message["tool_calls"]]
                messages[-1] = {**message, **reply, "tool_calls": calls}
                weights[-1] = weight if weights[-1] is None else weights[-1]
                counts[JOINED] += 1
                continue
            counts[IN_A_ROW] += 1
        messages.append(message)
        weights.append(weight)
        numbers.append(i)
    return Joined(replace(conversation, messages=messages, weights=weights), numbers)


def _belongs_to(message: Message, reply: Message) -> bool:
    """Return whether a message of the assistant has calls alone, and the speaker of a reply."""
    others = (value for key, value in message.items() if reply.get(key) != value)
    # Not only content and reasoning: a template may write other texts, such as a plan of the call.
    says_more = any(isinstance(value, str) and is_text(value) for value in others)
    has_more = says_more or message["content"] or message.get("reasoning_content")
    has_calls_alone = bool(message.get("tool_calls")) and not has_more
    return has_calls_alone and message.get("name") in (None, reply.get("name"))


def _is_alike(weight: float | None, other: float | None) -> bool:
    """Return whether two replies may be one turn: both are trained alike, as far as is known."""
    return weight == other or {weight, other} == {None, 1.0}
