"""Turns of a rendering that is cut at its trained spans: their weights, and who speaks between."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from tokmill.chat.conversation import ChatError
from tokmill.chat.tags import count_differs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokmill.chat.conversation import Conversation, Message


def weight_of_all(conversation: Conversation) -> float | None:
    """Return the one weight that all messages have, when all tokens are trained.

    Raises:
        ChatError: they differ, and the template does not show which text is whose.
    """
    weights = set(conversation.weights)
    if len(weights) == 1:
        return weights.pop()
    raise ChatError(
        "weight of another role",
        "messages have weights of their own, and a Jinja template does not show what all roles "
        "say: use a built-in --template, or train the replies alone",
    )


def span_weights(
    conversation: Conversation, replies: Sequence[int], n_spans: int
) -> list[float | None]:
    """Return the weight of each span.

    Raises:
        ChatError: another message than a reply is to be trained, or replies have weights of their
            own and the template marks more or fewer spans.
    """
    if any(conversation.weights):
        _check_weights(conversation)
    weights = [conversation.weights[i] for i in replies]
    if n_spans == len(replies):
        return weights
    if any(weight is not None for weight in weights):
        raise count_differs(len(replies), n_spans)
    return [None] * n_spans


def _check_weights(conversation: Conversation) -> None:
    for i, weight in enumerate(conversation.weights):
        role = conversation.messages[i]["role"]
        if weight and role != "assistant":
            raise ChatError(
                "weight of another role",
                f"message {i + 1} ({role}) has weight {weight}, and a Jinja template shows what "
                "the assistant says alone: use a built-in --template",
            )


def roles_between(messages: Sequence[Message], replies: list[int], n_spans: int) -> list[str]:
    """Return the role of what stands before, between and behind spans, user if one speaks there.

    Rules such as "after the last user" go by it. Where spans are not those of replies it is user,
    behind the last span only if somebody does speak there.
    """
    if n_spans != len(replies):
        is_answered = messages[-1]["role"] == "assistant"
        return ["user"] * n_spans + ["system" if is_answered else "user"]
    roles = []
    edges = [-1, *replies, len(messages)]
    for start, stop in pairwise(edges):
        speakers = [message["role"] for message in messages[start + 1 : stop]]
        others = [role for role in speakers if role != "assistant"] or ["system"]
        roles.append("user" if "user" in others else others[0])
    return roles
