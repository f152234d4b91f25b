"""Parts of a message with a weight of their own, carried through a template.

A character that no text holds stands at both edges of such a part while the template writes the
message. `Segments.replace_placeholders` removes it, and begins a segment there:

    content   [{"text": "bad ", "train": false}, {"text": "good"}]
    given     ⌇bad ⌇good
    segments  "bad " with weight 0, "good" with the weight of its turn
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from tokmill.chat.conversation import PART_WEIGHTS, ChatError
from tokmill.chat.escaping import Placeholders
from tokmill.chat.segments import Placeholder

if TYPE_CHECKING:
    from tokmill.chat.conversation import Conversation


def with_edges(conversation: Conversation, reserved: str) -> Conversation:
    """Return a conversation with placeholders at the edges of its parts.

    `reserved`: the text that the template writes itself.
    """
    placeholders = Placeholders(reserved, [conversation.messages, conversation.tools])
    stop = placeholders.choose(Placeholder(""))
    factors = sorted({part.factor for part in conversation.parts})
    starts = {f: placeholders.choose(Placeholder("", factor=f)) for f in factors}
    numbers = {id(message): i for i, message in enumerate(conversation.messages)}
    messages = list(conversation.messages)
    for (of_message, key), parts in groupby(conversation.parts, lambda p: (id(p.message), p.key)):
        i, pieces, end = numbers[of_message], [], 0
        text = messages[i][key]
        for part in parts:
            within = text[part.start : part.stop]
            pieces += [text[end : part.start], starts[part.factor], within, stop]
            end = part.stop
        messages[i] = {**messages[i], key: "".join([*pieces, text[end:]])}
    return replace(conversation, messages=messages, placeholders=placeholders.chosen)


def n_edges(conversation: Conversation) -> int:
    """Return how many edges stand in the messages of a conversation."""
    edges = [c for c, placeholder in conversation.placeholders.items() if not placeholder.string]
    texts = [m["content"] + m.get("reasoning_content", "") for m in conversation.messages]
    return sum(text.count(edge) for text in texts for edge in edges)


def cannot_carry() -> ChatError:
    """Return the error for a template that writes a message otherwise when it has edges."""
    return ChatError(
        PART_WEIGHTS,
        "the template, or the reading of tags, changes the text at the edge of a part that has a "
        "weight of its own: put white space at such edges, and think blocks, into parts without "
        "weights or messages of their own, or give the weight to the whole message",
    )
