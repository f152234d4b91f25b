"""Spans of replies from one rendering, for templates whose turns `jinja.turn_loop` finds.

The rendering notes where each turn begins in the text. The rendering of the first k messages, which
is never made, is then the text up to turn k and the ending of the template. Three things are
rendered again where they may differ:

    ending     with and without a generation prompt; once for all conversations if it is fixed
    last turn  turn k is the last of a shorter conversation, but not of this one: if it looked ahead
               (`loop.last`, the next message), all such turns are rendered once more, each as last
    anything   if a turn reads more than that, there are no spans from here
"""

from __future__ import annotations

from itertools import accumulate, chain
from typing import TYPE_CHECKING, NamedTuple, Protocol
from zlib import crc32

from tokmill.chat.conversation import ChatError
from tokmill.chat.jinja.spans import spans_by_prefix
from tokmill.chat.jinja.trace import Trace
from tokmill.errors import TokmillError

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping, Sequence

    import jinja2

    from tokmill.chat.conversation import Message
    from tokmill.chat.jinja.spans import RenderPrefix
    from tokmill.chat.jinja.turn_loop import TurnLoop


class TurnTemplates(NamedTuple):
    """A template with the filters of `jinja.turn_reads`, and the same without its turns."""

    whole: jinja2.Template
    frame: jinja2.Template
    loop: TurnLoop


class RenderTraced(Protocol):
    """Renders messages into a trace, with or without a generation prompt."""

    def __call__(
        self, template: jinja2.Template, trace: Trace, messages: Sequence[Message], *, prompt: bool
    ) -> bool:
        """Return whether the template accepts them."""


def spans_of_turns(
    templates: TurnTemplates,
    render: RenderTraced,
    messages: Sequence[Message],
    replies: Sequence[int],
    endings: MutableMapping[bool, str],
) -> tuple[str, dict[int, tuple[int, int]]] | None:
    """Return the rendering, and the spans of replies that are proven; None if none can be.

    A span is start, stop in characters, by the number of its message. `endings`: fixed endings
    without and with a generation prompt, filled here.
    """
    n_messages = len(messages)
    trace = Trace(messages)
    if not render(templates.whole, trace, messages, prompt=False):
        return None
    if not trace.is_whole() or not trace.asked <= {n_messages - 1}:
        return None
    turns = _Turns(templates, render, messages, replies, endings, trace)
    # A prompt has a turn before it, or the beginning may differ.
    first = max(trace.n_read, trace.n_before + 1)
    spans = {i: turns.span(i) for i in replies if i >= first}
    return turns.text, {i: span for i, span in spans.items() if -1 not in span}


_CHECKED_SHARE = 64


def check_sample(
    rendering: str,
    render: RenderPrefix,
    spans: Mapping[int, tuple[int, int]],
    n_messages: int,
) -> None:
    """Check three spans of one conversation in 64, chosen by its text, against prefixes.

    `spans`: of replies, by the number of their message.

    Raises:
        TokmillError: one differs.
    """
    ending = rendering[-_CHECKED_SHARE:].encode("utf-8", "surrogatepass")
    if not spans or crc32(ending) % _CHECKED_SHARE:
        return
    known = sorted(spans)
    chosen = sorted({known[0], known[len(known) // 2], known[-1]})
    try:
        expected = spans_by_prefix(rendering, render, chosen, n_messages)
    except ChatError as error:
        raise _differs(error.message) from None
    for i, span in zip(chosen, expected, strict=True):
        if spans[i] != span:
            raise _differs(f"message {i + 1} is trained at {spans[i]}, and its prefix at {span}")


def _differs(found: str) -> TokmillError:
    return TokmillError(
        f"a chat template's turns depend on each other in an unknown way ({found}): use "
        "--spans=prefix, and report the template"
    )


class _Turns:
    """The ends of shorter renderings in the text of a longer one."""

    def __init__(
        self,
        templates: TurnTemplates,
        render: RenderTraced,
        messages: Sequence[Message],
        replies: Sequence[int],
        endings: MutableMapping[bool, str],
        trace: Trace,
    ) -> None:
        self.text = trace.text
        self._templates = templates
        self._render = render
        self._messages = messages
        self._replies = replies
        self._endings = {} if templates.loop.ending_varies else endings
        self._trace = trace
        lengths = list(accumulate(map(len, trace.pieces), initial=0))
        self._starts = [lengths[i] for i in (*trace.starts, trace.stop)]
        self._as_last: dict[bool, list[str] | None] = {}

    def span(self, i: int) -> tuple[int, int]:
        """Return the span of reply `i`, -1 where it is unknown."""
        is_last = i + 1 == len(self._messages)
        stop = len(self.text) if is_last else self._end(i, prompt=False)
        return self._end(i - 1, prompt=True), stop

    def _end(self, last: int, *, prompt: bool) -> int:
        """Return where the rendering of the messages up to `last` ends in the text."""
        at = last - self._trace.n_before
        start, stop = self._starts[at : at + 2]
        if last in self._trace.looked:
            turns = self._turns_as_last(prompt=prompt)
            if turns is None or not self.text.startswith(turns[at], start):
                return -1
            stop = start + len(turns[at])
        ending = self._ending(last + 1, prompt=prompt)
        if ending is None or not self.text.startswith(ending, stop):
            return -1
        return stop + len(ending)

    def _looked(self) -> set[int]:
        """Return the last messages of prompts and replies whose turns looked ahead."""
        ends = chain.from_iterable((i - 1, i) for i in self._replies)
        return self._trace.looked.intersection(ends)

    def _ending(self, n_messages: int, *, prompt: bool) -> str | None:
        if prompt in self._endings:
            return self._endings[prompt]
        if self._trace.keeps and self._templates.loop.ending_reads_names:
            return None
        reads = self._templates.loop.reads.ending_reads
        messages = self._messages[:n_messages] if reads else self._messages
        trace = Trace(messages)
        if not self._render(self._templates.frame, trace, messages, prompt=prompt):
            return None
        ending = "".join(trace.pieces[trace.stop :])
        if not reads:
            self._endings[prompt] = ending
        return ending

    def _turns_as_last(self, *, prompt: bool) -> list[str] | None:
        """Return each turn as it is where its message is the last; None if unknown."""
        prompt = prompt and self._templates.loop.reads.turns_ask
        if prompt not in self._as_last:
            trace = Trace(self._messages, self._looked())
            is_known = (
                not self._trace.keeps
                and self._render(self._templates.whole, trace, self._messages, prompt=prompt)
                and trace.is_whole()
                and not trace.keeps
            )
            self._as_last[prompt] = trace.turns() if is_known else None
        return self._as_last[prompt]
