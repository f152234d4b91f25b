"""History as inference shows it: earlier replies without their reasoning.

A chat program sends a reply that a later user message follows without its reasoning. Such a reply
is not what the model would write if it were asked, so that it is context.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from tokmill.chat.segments import Kind
from tokmill.chat.weights import NOT_TRAINED, last_user

if TYPE_CHECKING:
    from collections import Counter

    from tokmill.chat.conversation import Conversation

DROPPED = "replies in the history without their reasoning (context; --samples turn trains each)"


def without_reasoning(chat: Conversation, counts: Counter[str]) -> Conversation:
    """Return a chat whose history, before the last user message, is context without reasoning.

    Reasoning is in its field, or in the text between placeholders. Adds to `counts` how many
    replies had some.
    """
    end = last_user(chat.messages)
    tags = ["", ""]
    for character, placeholder in chat.placeholders.items():
        if placeholder.kind == Kind.REASONING:
            tags[placeholder.closes] += character
    # DeepSeek-R1's template leaves the newlines behind a block, LLaMA-Factory takes them away.
    rest = "" if chat.hides_tags else "\n*"
    block = re.compile(rf"\s*[{tags[0]}].*?[{tags[1]}]{rest}", re.DOTALL) if tags[0] else None
    messages = list(chat.messages)
    for i, message in enumerate(messages[:end]):
        plain = {key: value for key, value in message.items() if key != "reasoning_content"}
        if block is not None:
            plain["content"] = block.sub("", message["content"], count=1)
        if plain != message:
            counts[DROPPED] += bool(message.get("reasoning_content", "rest"))
            messages[i] = plain
    weights = [NOT_TRAINED if i < end else weight for i, weight in enumerate(chat.weights)]
    return replace(chat, messages=messages, weights=weights)
