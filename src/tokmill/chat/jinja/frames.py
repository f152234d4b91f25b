"""Spans of replies without a prefix for each, for templates without generation tags.

Marks stand around the contents of the replies in a second rendering. If each appears once, in
order, and the rest is the rendering without marks, they say where the contents are. What a span has
before and behind its content, its frame, comes from verified prefixes, once for each order of
roles:

    rendering   <|user|>Hi<|assistant|>Hello<|end|><|user|>Bye<|assistant|>Ciao<|end|>
    contents                           ~~~~~                                ~~~~
    frames                             (    <|end|>)                        (   <|end|>)

Every later conversation must have the same text there. One in `CHECKED_SHARE`, chosen by its text,
is held against prefixes all the same; one that differs ends the run.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from tokmill.chat.conversation import ChatError
from tokmill.chat.jinja.spans import spans_by_prefix
from tokmill.errors import TokmillError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokmill.chat.conversation import Message
    from tokmill.chat.escaping import Marks
    from tokmill.chat.jinja.spans import RenderPrefix

    Spans = list[tuple[int, int]]
    """Start, stop in characters of a rendering."""

CHECKED_SHARE = 64
_MOST_PREFIXES = 16
"""In a chat of more replies the first, the middle and the last stand for all."""

_MOST_ORDERS = 4096
_MORE_THAN_TEXT = frozenset(("tool_calls", "reasoning_content"))


class Frame(NamedTuple):
    """The text of a span before and behind the content of its reply."""

    before: str
    behind: str


class FrameSpans:
    """Finds the spans of replies in renderings of one template; threads may share one."""

    def __init__(self) -> None:
        self._frames: dict[tuple[str, ...], tuple[Frame, Frame]] = {}

    def find(
        self,
        rendering: str,
        render: RenderPrefix,
        render_messages: Callable[[list[Message]], str],
        messages: Sequence[Message],
        replies: Sequence[int],
        marks: Marks,
    ) -> Spans | None:
        """Return the span of each reply, None if prefixes must find them.

        `rendering`: of all messages. `render`: see `spans_by_prefix`. `render_messages`: renders
        other messages. `replies`: indices of messages, at least two. `marks`: private characters
        that no text holds.

        Raises:
            ChatError: prefixes show that the template has no span for a reply.
            TokmillError: prefixes show that an earlier conversation told a wrong frame.
        """
        if any(not _MORE_THAN_TEXT.isdisjoint(message) for message in messages):
            return None
        contents = _contents(rendering, render_messages(_marked(messages, replies, marks)), marks)
        if contents is None or len(contents) != len(replies):
            return None
        order = tuple(message["role"] for message in messages)
        frames = self._frames.get(order)
        spans = None if frames is None else _spans(rendering, contents, frames)
        ending = rendering[-CHECKED_SHARE:].encode("utf-8", "surrogatepass")
        if spans is not None:
            if crc32(ending) % CHECKED_SHARE == 0:
                _check(spans, rendering, render, messages, replies)
            return spans
        chosen = list(range(len(replies)))
        if len(chosen) > _MOST_PREFIXES:
            chosen = _three(chosen)
        proven = spans_by_prefix(rendering, render, [replies[i] for i in chosen], len(messages))
        found = [
            Frame(rendering[start : contents[i][0]], rendering[contents[i][1] : stop])
            for i, (start, stop) in zip(chosen, proven, strict=True)
            if start <= contents[i][0] and contents[i][1] <= stop
        ]
        if len(found) < len(chosen) or len(set(found[:-1])) > 1:
            return None
        if len(self._frames) < _MOST_ORDERS:
            self._frames[order] = found[0], found[-1]
        return _spans(rendering, contents, (found[0], found[-1]))


def _three(items: Sequence[int]) -> list[int]:
    """Return the first, the middle and the last of some items."""
    return sorted({items[0], items[len(items) // 2], items[-1]})


def _check(
    spans: Spans,
    rendering: str,
    render: RenderPrefix,
    messages: Sequence[Message],
    replies: Sequence[int],
) -> None:
    """Check three spans of a conversation against prefixes.

    Raises:
        TokmillError: one differs, so that the run must not go on.
    """
    chosen = _three(replies)
    try:
        proven = spans_by_prefix(rendering, render, chosen, len(messages))
    except ChatError as error:
        raise _differs(error.message) from None
    for i, span in zip(chosen, proven, strict=True):
        known = spans[replies.index(i)]
        if known != span:
            raise _differs(f"message {i + 1} is trained at {known}, and its prefix at {span}")


def _differs(found: str) -> TokmillError:
    return TokmillError(
        f"a chat template's turns depend on each other in an unknown way ({found}): use "
        "--spans=prefix, and report the template"
    )


def _marked(messages: Sequence[Message], replies: Sequence[int], marks: Marks) -> list[Message]:
    """Return messages with marks around the contents of replies.

    A template that strips contents does not strip white space within the marks: then the rendering
    is another one, and prefixes find the spans.
    """
    marked = list(messages)
    for i in replies:
        marked[i] = {**messages[i], "content": marks[0] + messages[i]["content"] + marks[1]}
    return marked


def _contents(rendering: str, marked: str, marks: Marks) -> Spans | None:
    """Return where the marks stand in the rendering without them; None if it is another text."""
    parts = [part for piece in marked.split(marks[0]) for part in piece.split(marks[1])]
    edges = list(accumulate(map(len, parts)))[:-1]
    spans = list(zip(edges[::2], edges[1::2], strict=False))
    is_ordered = marked.replace(marks[0], marks[1]).count(marks[1]) == 2 * len(spans) and all(
        marked[start + 2 * i] == marks[0] and marked[stop + 2 * i + 1] == marks[1]
        for i, (start, stop) in enumerate(spans)
    )
    return spans if is_ordered and "".join(parts) == rendering else None


def _spans(rendering: str, contents: Spans, frames: tuple[Frame, Frame]) -> Spans | None:
    """Return the spans that the frames give; None if other text stands there."""
    spans = []
    for i, (start, stop) in enumerate(contents):
        before, behind = frames[i + 1 == len(contents)]
        begin, end = start - len(before), stop + len(behind)
        if rendering[max(0, begin) : start] != before or rendering[stop:end] != behind:
            return None
        spans.append((begin, end))
    is_apart = all(left[1] <= right[0] for left, right in pairwise(spans))
    return spans if is_apart else None
