"""The trained spans of a rendering, from generation tags or by verified prefix differencing.

With tags, the template writes a mark before and behind each span. Without tags, a span is the text
between the prompt of a reply and the rest of the conversation:

    prompt  render(messages[:i], generation prompt)   <|user|>Hi<|assistant|>
    prefix  render(messages[:i + 1])                  <|user|>Hi<|assistant|>Hello<|end|>
    span of message i                                                        ~~~~~~~~~~~~

That holds only if both are prefixes of the full rendering. Templates that rewrite earlier turns,
such as those that drop old reasoning, are refused with the turn's number, from 1. It takes two more
renderings for each reply.

In a chat of more than `MOST_PROVEN` replies, the first, the middle and the last stand for all. In a
second rendering marks stand around the contents of the replies. If each appears once, in order, and
the rest is the rendering without marks, they say where the contents are. What a span has before and
behind its content, its frame, comes from the three:

    rendering   <|user|>Hi<|assistant|>Hello<|end|><|user|>Bye<|assistant|>Ciao<|end|>
    contents                           ~~~~~                                ~~~~
    frames                             (    <|end|>)                        (   <|end|>)

Contents of other roles, where these are trained, are found by such marks too.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING, Protocol

from tokmill.chat.conversation import ChatError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tokmill.chat.conversation import Message
    from tokmill.chat.escaping import Marks

    Spans = list[tuple[int, int]]
    """Start, stop in characters of a rendering."""

ADVICE = "use a template with generation tags"

HIDES_TURNS = "template rewrites earlier turns"

MOST_PROVEN = 4
"""Replies of a chat of which prefixes prove each one."""

MOST_PREFIXES = 1_000_000
"""Replies times messages of one chat; each reply is two renderings of all messages before it, and a
message takes about 4 us."""

_MORE_THAN_TEXT = frozenset(("tool_calls", "reasoning_content"))


class RenderPrefix(Protocol):
    """Renders the first `n_messages` messages, with or without a generation prompt."""

    def __call__(self, n_messages: int, *, prompt: bool) -> str:
        """Return the rendering."""


def spans_by_prefix(
    rendering: str, render: RenderPrefix, replies: Sequence[int], n_messages: int
) -> list[tuple[int, int]]:
    """Return the span of each reply in the rendering of all `n_messages` messages.

    `replies`: indices of messages, increasing. Spans are start, stop in characters.
    """
    spans = []
    previous = 0
    for i in replies:
        prompt = prefix = _prompt(render, i)
        if rendering.startswith(prompt):
            # After the last message the prefix is the full rendering.
            prefix = rendering if i + 1 == n_messages else render(i + 1, prompt=False)
        if not (rendering.startswith(prefix) and previous <= len(prompt) <= len(prefix)):
            raise ChatError(
                HIDES_TURNS,
                f"message {i + 1}: the template writes this turn, or the text before it, otherwise "
                "once later turns follow (is old reasoning dropped?), or its generation prompt is "
                f"another text, which --template-kwargs may change: {ADVICE}, or one sample per "
                "turn (--samples turn)",
            )
        spans.append((len(prompt), len(prefix)))
        previous = len(prefix)
    return spans


def _prompt(render: RenderPrefix, i: int) -> str:
    """Return the prompt of a reply; a template may refuse to prompt for a first message."""
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


def spans_by_frames(
    rendering: str,
    render: RenderPrefix,
    render_messages: Callable[[list[Message]], str],
    messages: Sequence[Message],
    replies: Sequence[int],
    marks: Marks,
) -> Spans | None:
    """Return the span of each of many replies; None if prefixes must find them.

    `render_messages`: renders other messages. `marks`: private characters that no text holds. For
    the rest see `spans_by_prefix`.
    """
    if any(not _MORE_THAN_TEXT.isdisjoint(message) for message in messages):
        return None
    marked = _marked(messages, {i: messages[i]["content"] for i in replies}, marks)
    contents = _contents(rendering, render_messages(marked), marks)
    if contents is None or len(contents) != len(replies):
        return None
    chosen = [0, len(replies) // 2, len(replies) - 1]
    proven = spans_by_prefix(rendering, render, [replies[i] for i in chosen], len(messages))
    frames = []
    for i, (start, stop) in zip(chosen, proven, strict=True):
        content_start, content_stop = contents[i]
        if content_start < start or stop < content_stop:
            return None
        frames.append((rendering[start:content_start], rendering[content_stop:stop]))
    if frames[0] != frames[1]:
        return None
    spans = []
    for i, (start, stop) in enumerate(contents):
        before, behind = frames[-1] if i + 1 == len(contents) else frames[0]
        begin, end = start - len(before), stop + len(behind)
        if rendering[max(0, begin) : start] != before or rendering[stop:end] != behind:
            return None
        spans.append((begin, end))
    is_apart = all(left[1] <= right[0] for left, right in pairwise(spans))
    return spans if is_apart else None


def _marked(
    messages: Sequence[Message], contents: Mapping[int, str], marks: Marks
) -> list[Message]:
    """Return messages with contents, by number, that have marks around them.

    A template that strips contents does not strip white space within the marks: then the rendering
    is another one, and prefixes find the spans.
    """
    marked = list(messages)
    for i, content in contents.items():
        marked[i] = {**messages[i], "content": marks[0] + content + marks[1]}
    return marked


def _contents(rendering: str, marked: str, marks: Marks) -> Spans | None:
    """Return where the marks stand in the rendering without them; None if it is another text."""
    pieces = re.split(f"([{marks[0]}{marks[1]}])", marked)
    if pieces[1::2] != [*marks[:2]] * (len(pieces) // 4) or "".join(pieces[::2]) != rendering:
        return None
    edges = list(accumulate(map(len, pieces[::2])))
    return list(zip(edges[::2], edges[1::2], strict=False))


_CHANGES = "template changes spans"


def split_at_marks(text: str, marks: Marks, n_replies: int) -> list[str]:
    """Split a rendering at its marks: text, span, text, …, text; spans have odd indices.

    Adjacent spans are joined if that makes one span for each reply: Phi 3 has its last eos in a tag
    of its own.
    """
    first, *rest = text.split(marks[0])
    parts = [first]
    n_stops = [first.count(marks[1])]
    for part in rest:
        pieces = part.split(marks[1])
        n_stops.append(len(pieces) - 1)
        parts += pieces
    if n_stops != [0] + [1] * len(rest):
        raise ChatError(
            _CHANGES,
            "generation tags of the template stand within one another, or it cuts what they hold",
        )
    return parts if len(rest) == n_replies else _joined(parts, n_replies)


def check_unchanged(parts: Sequence[str], plain: str) -> None:
    """Check that the parts are the rendering without marks."""
    if "".join(parts) != plain:
        raise ChatError(
            _CHANGES,
            "the template works on what its generation tags hold, so that the spans are unknown: "
            "put the tags around what is written in the end",
        )


def keep_spans(parts: Sequence[str], spans: Sequence[int]) -> list[str]:
    """Return parts with some of the spans, by number; the others become text."""
    edges = [0, *(edge for i in spans for edge in (2 * i + 1, 2 * i + 2)), len(parts)]
    return ["".join(parts[start:stop]) for start, stop in pairwise(edges)]


def _joined(parts: list[str], n_replies: int) -> list[str]:
    joined = parts[:2]
    for i in range(2, len(parts) - 1, 2):
        if parts[i]:
            joined += parts[i : i + 2]
        else:
            joined[-1] += parts[i + 1]
    joined += parts[2:][-1:]
    return joined if len(joined) // 2 == n_replies else parts


def roles_between(messages: Sequence[Message], replies: list[int], n_spans: int) -> list[str]:
    """Return the role of each text before, between and behind spans, for the mask rule's turns.

    It is user if a user speaks there. If spans do not match replies it is user too, but behind the
    last span only if the conversation does not end with a reply.
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


def with_contents(
    parts: Sequence[str],
    render_messages: Callable[[list[Message]], str],
    messages: Sequence[Message],
    replies: Sequence[int],
    chosen: Sequence[int],
    marks: Marks,
) -> tuple[list[str], list[int]] | None:
    """Return parts with spans for contents of chosen messages too, and the message of each span.

    None if the template changes, repeats or moves a content. It may strip all of a role, and quote
    them as JSON does. An empty content has no span.
    """
    rendering = "".join(parts)
    edges = list(accumulate(map(len, parts)))
    spans = list(zip(edges[::2], edges[1::2], replies, strict=False))
    for role in dict.fromkeys(messages[i]["role"] for i in chosen):
        whole = {i: messages[i]["content"] for i in chosen if messages[i]["role"] == role}
        for contents in (whole, {i: content.strip() for i, content in whole.items()}):
            filled = {i: content for i, content in contents.items() if content}
            marked = _marked(messages, filled, marks)
            with suppress(ChatError):  # it may ask for contents of a certain form
                places = _contents(rendering, render_messages(marked), marks) or []
                texts = [rendering[start:stop] for start, stop in places]
                if len(texts) == len(filled) and all(map(_is_written, texts, filled.values())):
                    spans += [(*place, i) for place, i in zip(places, filled, strict=True)]
                    break
        else:
            return None
    spans.sort()
    speakers = [i for _, _, i in spans]
    if speakers != sorted(speakers) or any(left[1] > right[0] for left, right in pairwise(spans)):
        return None
    cuts = [0, *chain.from_iterable(span[:2] for span in spans), len(rendering)]
    return [rendering[start:stop] for start, stop in pairwise(cuts)], speakers


def _is_written(text: str, content: str) -> bool:
    """Return whether a text is a content, as it is or as JSON has it between quotes."""
    return text in (content, json.dumps(content, ensure_ascii=False)[1:-1])
