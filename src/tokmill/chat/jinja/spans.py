"""Verified prefix differencing: trained spans of a template that has no generation tags.

The reply that a model gives stands between what it is asked with and what has been said after it:

    prompt  render(messages[:i], generation prompt)   <|user|>Hi<|assistant|>
    so far  render(messages[:i + 1])                  <|user|>Hi<|assistant|>Hello<|end|>
    span of message i                                                        ~~~~~~~~~~~~

That holds only where both are prefixes of the whole rendering. Templates that rewrite earlier
turns, such as those that drop old reasoning, break it on purpose, and are refused with the turn's
number, from 1. It costs two more renderings of the conversation so far for each reply.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from tokmill.chat.conversation import ChatError, count_differs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokmill.chat.conversation import Message
    from tokmill.chat.escaping import Marks

ADVICE = "use a template with generation tags"
"""What helps with every refusal; who knows a template that does may name it instead."""

PROMPT_DIFFERS = "generation prompt differs"

_ADVICE_OR_TURNS = f"{ADVICE}, or one sample per turn (--samples turn)"


class RenderPrefix(Protocol):
    """Renders the first `n_messages` messages, with or without a prompt to reply."""

    def __call__(self, n_messages: int, *, prompt: bool) -> str:
        """Return the rendering."""


def spans_by_prefix(
    whole: str, render: RenderPrefix, replies: Sequence[int], n_messages: int
) -> list[tuple[int, int]]:
    """Return the span of each reply in the rendering of all `n_messages` messages.

    `replies` are indices of messages, increasing. Spans are start, stop in characters, in order.
    """
    spans = []
    previous = 0
    for i in replies:
        prompt = _prompt(render, i)
        if not whole.startswith(prompt):
            raise _refusal(whole, prompt, render, i)
        # The last reply ends where the conversation does: that rendering is there already.
        so_far = whole if i + 1 == n_messages else render(i + 1, prompt=False)
        if not whole.startswith(so_far):
            raise ChatError(
                "template rewrites earlier turns",
                f"message {i + 1}: this turn renders differently once later turns follow (is old "
                f"reasoning dropped?): {_advice(so_far, prompt)}",
            )
        if len(so_far) < len(prompt) or len(prompt) < previous:
            raise ChatError(
                "template drops a turn",
                f"message {i + 1}: the template writes nothing for it, or less than its prompt: "
                f"{ADVICE}",
            )
        spans.append((len(prompt), len(so_far)))
        previous = len(so_far)
    return spans


def _prompt(render: RenderPrefix, i: int) -> str:
    """Render what a reply answers; a template may not take the prompt of a reply that is first."""
    try:
        return render(i, prompt=True)
    except ChatError as error:
        if i or error.reason != "template error":
            raise
        raise ChatError(
            "nothing before the reply",
            "message 1 is the assistant's, and this template cannot ask for a reply without a "
            f"message before it ({error.message}): put a user message first, or choose a template "
            "that takes such records, such as --template chatml",
        ) from None


def _refusal(whole: str, prompt: str, render: RenderPrefix, i: int) -> ChatError:
    """Return why the prompt for a reply is no prefix: earlier turns, or the prompt itself."""
    try:
        so_far = render(i + 1, prompt=False)
    except ChatError:  # then a sample that ends there is refused as well
        so_far = ""
    advice = _advice(so_far, prompt)
    if whole.startswith(render(i, prompt=False)):
        return ChatError(
            PROMPT_DIFFERS,
            f"message {i + 1}: the template's generation prompt is not the text that it writes "
            f"before this turn: {advice}",
        )
    return ChatError(
        "template rewrites earlier turns",
        f"message {i + 1}: earlier turns render differently once this turn follows (is old "
        f"reasoning dropped?): {advice}",
    )


def _advice(so_far: str, prompt: str) -> str:
    """Return what helps: a sample that ends with this turn, only if its prompt is a prefix."""
    return _ADVICE_OR_TURNS if so_far.startswith(prompt) else ADVICE


_CHANGES = "template changes spans"


def split_at_marks(text: str, marks: Marks, n_replies: int) -> list[str]:
    """Cut a rendering at its marks: what stands before a span, the span, …, what stands behind.

    Spans with nothing between them are one if that makes one span a reply: Phi 3 has its last eos
    in a tag of its own.
    """
    first, *rest = text.split(marks[0])
    regions = [first]
    n_stops = [first.count(marks[1])]
    for part in rest:
        pieces = part.split(marks[1])
        n_stops.append(len(pieces) - 1)
        regions += pieces
    if n_stops != [0] + [1] * len(rest):
        raise ChatError(
            _CHANGES,
            "generation tags of the template stand within one another, or it cuts what they hold",
        )
    return regions if len(rest) == n_replies else _joined(regions, n_replies)


def check_unchanged(regions: Sequence[str], plain: str) -> None:
    """Check that the regions are the rendering without marks."""
    if "".join(regions) != plain:
        raise ChatError(
            _CHANGES,
            "the template works on what its generation tags hold, so that the spans are unknown: "
            "put the tags around what is written in the end",
        )


def keep_last_span(regions: list[str], n_replies: int) -> list[str]:
    """Keep the last span alone, that of the last reply, if there is any reply."""
    if len(regions) // 2 != n_replies:
        raise count_differs(n_replies, len(regions) // 2)
    return ["".join(regions[:-2]), *regions[-2:]] if n_replies else regions


def _joined(regions: list[str], n_replies: int) -> list[str]:
    joined = regions[:2]
    for i in range(2, len(regions) - 1, 2):
        if regions[i]:
            joined += regions[i : i + 2]
        else:
            joined[-1] += regions[i + 1]
    joined += regions[2:][-1:]
    return joined if len(joined) // 2 == n_replies else regions


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
