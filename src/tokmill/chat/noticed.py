"""Counts of what looks wrong: what a template leaves out, and odd replies.

A template may have no place for tool calls, for a system message in the middle, for the reasoning
of earlier replies. What it writes depends on the shape of a conversation: roles, and which fields
are filled. So a conversation of the same shape, in which every text is a word of its own, shows
what is lost.

Replies may be empty, have no end, or come before anything was asked. None of that shows in the ids.
A model trained on empty replies learns to say nothing, and one that never sees the end of its turn
as a target does not stop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.chat.conversation import ChatError, Conversation, Extras
from tokmill.chat.segments import ENDS, ROLES, Kind
from tokmill.offsets import starts_run

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from tokmill.chat.conversation import Counts, Message
    from tokmill.chat.mask_rule import MaskRule
    from tokmill.chat.segments import Columns, SegmentTable

LOST_REASONING = "replies whose reasoning the template leaves out"
LOST_CALLS = "replies whose tool calls the template leaves out"
LOST_TOOLS = "chats whose tools the template leaves out"
LOST_MESSAGES = {
    role: f"{name} that the template leaves out"
    for role, name in {
        "system": "system messages", "developer": "developer messages", "user": "user messages",
        "assistant": "replies", "tool": "tool messages",
    }.items()
}  # fmt: skip
LOST_BLOCKS = "replies whose think block the template leaves out, but not with --inline-tags fields"
LOST = frozenset((LOST_REASONING, LOST_BLOCKS, LOST_CALLS, LOST_TOOLS, *LOST_MESSAGES.values()))
WRITTEN_BY = "chats of which the template leaves out what this one writes:"
"""The beginning of a count that ends with the name of the family's training template."""

_MOST_SHAPES = 4096
_TEXT_ALONE = 2
"""A message with so many keys has a role and a content."""


class LostFields:
    """Counts what one template leaves out; threads may share one.

    `written`: returns the text of a conversation as the template writes it; `by_family`: the same
    with the training template of its family, and the name of that, '' if there is none.
    """

    def __init__(
        self,
        written: Callable[[Conversation], str],
        by_family: Callable[[Conversation], tuple[str, str]],
    ) -> None:
        self._written = written
        self._by_family = by_family
        self._lost: dict[object, list[tuple[int, str]]] = {}

    def count(self, conversation: Conversation, counts: Counts, first: int = 0) -> None:
        """Add what is lost of messages from number `first` on, and of the tools, to `counts`."""
        variables = conversation.variables
        shape = (
            tuple(
                [
                    # Spares a call for nearly all messages.
                    (message["role"], bool(message["content"]))
                    if len(message) == _TEXT_ALONE
                    else _shape(message)
                    for message in conversation.messages
                ]
            ),
            bool(conversation.tools),
            repr(variables) if variables else "",
            tuple(conversation.extras.record),
        )
        lost = self._lost.get(shape)
        if lost is None:
            lost = self._find(conversation)
            if len(self._lost) < _MOST_SHAPES:
                self._lost[shape] = lost
        for i, name in lost:
            if i >= first:
                counts[name] += 1

    def _find(self, conversation: Conversation) -> list[tuple[int, str]]:
        """Return what is lost: the number of the message, and the name of the count."""
        messages, words = [], []
        for i, message in enumerate(conversation.messages):
            told, of_message = _told(message, i)
            messages.append(told)
            words += [(i, name, word) for name, word in of_message]
        tools = None
        if conversation.tools:
            tools = [_TOOL]
            words.append((0, LOST_TOOLS, _TOOL_WORD))
        probe = Conversation(
            messages,
            [None] * len(messages),
            tools,
            variables=conversation.variables,
            extras=Extras(record=conversation.extras.record),
        )
        try:
            text = self._written(probe).casefold()
        except ChatError:  # it may ask for more than words, such as ids of calls in its own form
            return []
        lost = [(i, name, word) for i, name, word in words if word not in text]
        found = [(i, name) for i, name, _ in lost]
        if lost:
            family, text = self._by_family(probe)
            if family and all(word in text.casefold() for _, _, word in lost):
                found.append((lost[0][0], f"{WRITTEN_BY} {family}"))
        return found


def _shape(message: Message) -> object:
    """Return what a template may look at, besides the texts themselves."""
    return tuple(
        (key, value if key == "role" else len(value) if isinstance(value, list) else bool(value))
        for key, value in message.items()
    )


def _told(message: Message, i: int) -> tuple[Message, list[tuple[str, str]]]:
    """Return a message with words for its texts, and each word with the count of its loss."""
    # All else is the same for every message of this shape: the first one seen decides for all.
    told = {k: _ID if v and isinstance(v, str) else v for k, v in message.items()}
    told |= {"role": message["role"], "content": ""}
    words: list[tuple[str, str]] = []
    if message["content"]:
        told["content"] = f"cq{i}z"
        words.append((LOST_MESSAGES[message["role"]], told["content"]))
    if message.get("reasoning_content"):
        told["reasoning_content"] = f"rq{i}z"
        words.append((LOST_REASONING, told["reasoning_content"]))
    if calls := message.get("tool_calls"):
        told["tool_calls"] = [_call(f"fq{i}x{j}z") for j in range(len(calls))]
        words.append((LOST_CALLS, f"fq{i}x{len(calls) - 1}z"))
    return told, words


def _call(name: str) -> dict[str, Any]:
    function = {"name": name, "arguments": {"k": "v"}}
    return {"id": _ID, "type": "function", "function": function}


_ID = "a1b2c3d4e"
"""Nine letters and digits, as Mistral's templates ask for."""


_TOOL_WORD = "tq0z"
_TOOL = {
    "type": "function",
    "function": {
        "name": _TOOL_WORD,
        "description": "d",
        "parameters": {
            "type": "object",
            "properties": {"k": {"type": "string", "description": "d"}},
            "required": ["k"],
        },
    },
}


EMPTY_REPLIES = "empty replies (only their end of turn is trained)"
UNENDED_REPLIES = "replies whose end of turn is not trained"
ASSISTANT_FIRST = "chats that begin with the assistant: are --role-names right?"

_SPOKEN, _ENDS = np.zeros((2, len(Kind)), bool)
_SPOKEN[[Kind.CONTENT, Kind.REASONING, Kind.TOOL_CALL]] = True
_ENDS[list(ENDS)] = True


def reply_counts(
    columns: Columns, weights: npt.NDArray[np.float32], rule: MaskRule, *, names_roles: bool
) -> dict[str, npt.NDArray[np.int64]]:
    """Return how many such replies each sample has, (n_samples,) by name; only if any.

    `weights`: (n_segments,), by `rule`. A missing end of turn counts only if the rule trains ends.
    `names_roles`: the settings name roles, so that chats may begin with a system prompt as a reply.
    """
    table, is_trained = columns.table, weights > 0
    is_ended = _turns_of(table, is_trained & _ENDS[table.kinds])
    is_said = _not_blank(columns, is_trained & _SPOKEN[table.kinds] & (columns.ids < 0))
    is_reply = table.roles == ROLES.index("assistant")
    replies = {EMPTY_REPLIES: is_reply & is_ended & ~is_said}
    if rule.trained[Kind.EOT]:
        replies[UNENDED_REPLIES] = is_reply & is_said & ~is_ended
    if names_roles:
        spoken = np.flatnonzero(table.roles != ROLES.index("system"))
        is_first = np.zeros(len(table.roles), bool)
        is_first[spoken[starts_run(table.samples[spoken])]] = True
        replies[ASSISTANT_FIRST] = is_reply & is_first
    n_samples = len(columns.offsets) - 1
    return {
        name: np.bincount(table.samples[turns], minlength=n_samples)
        for name, turns in replies.items()
        if turns.any()
    }


def _turns_of(table: SegmentTable, segments: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which turns hold one of the segments, as indices or bool: (n_turns,)."""
    turns = np.zeros(len(table.roles), bool)
    turns[table.turns[segments]] = True
    return turns


def _not_blank(columns: Columns, segments: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return which turns hold more than white space in one of the segments: (n_turns,)."""
    import pyarrow.compute as pc  # the processes that render do without it: 25 ms each

    spoken = np.flatnonzero(segments)
    is_blank = pc.utf8_is_space(columns.text.take(spoken)).to_numpy(zero_copy_only=False)
    return _turns_of(columns.table, spoken[~is_blank])
