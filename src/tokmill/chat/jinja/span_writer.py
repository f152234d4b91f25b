"""A rendering, cut at its trained spans, written as turns and segments.

Regions alternate: what stands before the first span, the span, what stands before the next, …, what
stands behind the last; an odd number of strings. A span with the header, end of turn and suffix
around it is an assistant turn; the rest between two spans is one turn of whoever spoke there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tokmill.chat.conversation import ChatError
from tokmill.chat.segments import Kind
from tokmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokmill.chat.control_strings import TokenSplitter
    from tokmill.chat.conversation import Message
    from tokmill.chat.segments import Segments


@dataclass(frozen=True, slots=True)
class ReplyFrame:
    """What a template writes around a reply.

    `header`: what stands right before, the generation prompt, or ''. `openers`: control tokens that
    begin a turn. `ends_inside`: whether a span holds its end of turn.
    """

    header: str = ""
    openers: frozenset[str] = frozenset()
    ends_inside: bool = True


class SpanWriter:
    """Writes regions into segments; see the top of the module."""

    def __init__(self, cut: TokenSplitter, around: ReplyFrame) -> None:
        self._cut = cut
        self._around = around
        self._header = cut(around.header)

    def write(
        self,
        regions: Sequence[str],
        roles: Sequence[str],
        weights: Sequence[float | None],
        segments: Segments,
        *,
        break_: str = "",
    ) -> None:
        """Write regions: turns between spans have `roles`, the spans' turns `weights`.

        `break_` is taken out of the text: what keeps text apart from control tokens.
        """
        self._check_edges(regions)
        header = self._around.header
        has_ended = True
        for i, role in enumerate(roles):
            before = regions[2 * i]
            is_last = 2 * i + 1 == len(regions)
            has_header = not is_last and header != "" and before.endswith(header)
            pieces = self._pieces(before[: -len(header)] if has_header else before, break_)
            if not has_ended:
                pieces = self._write_end(pieces, segments)
            elif i:
                pieces = _write_suffix(pieces, segments)
            if len(pieces) > 1 or pieces[0]:
                segments.begin_turn(role)
                segments.pieces(pieces, Kind.OTHER)
            if is_last:
                return
            segments.begin_turn("assistant", weights[i])
            if has_header:
                segments.pieces(self._header, Kind.HEADER)
            has_ended = self._write_span(self._pieces(regions[2 * i + 1], break_), segments)

    def _check_edges(self, regions: Sequence[str]) -> None:
        for i in range(len(regions) - 1):
            if self._cut.crosses(regions[i], regions[i + 1]):
                raise ChatError(
                    "control token across spans",
                    "a control token begins on one side of the edge of a trained span, and ends on "
                    "the other",
                )

    def _pieces(self, text: str, break_: str) -> list[str]:
        pieces = self._cut(text)
        return [piece.replace(break_, "") for piece in pieces] if break_ else pieces

    def _write_span(self, pieces: list[str], segments: Segments) -> bool:
        """Write a trained span; say whether its end of turn was in it."""
        suffix = pieces[-1]
        if not self._around.ends_inside or len(pieces) == 1 or suffix.strip():
            segments.pieces(pieces, Kind.CONTENT)
            return False
        segments.pieces(pieces[:-2], Kind.CONTENT)
        segments.control(pieces[-2], Kind.EOT)
        segments.text(suffix, Kind.SUFFIX)
        return True

    def _write_end(self, pieces: list[str], segments: Segments) -> list[str]:
        """Write the end of turn that stands right behind a span; give the pieces left."""
        if len(pieces) == 1 or pieces[0] or pieces[1] in self._around.openers:
            return pieces
        segments.control(pieces[1], Kind.EOT_OUTSIDE)
        return _write_suffix(pieces[2:], segments)


def _write_suffix(pieces: list[str], segments: Segments) -> list[str]:
    """Write the white space that stands behind a reply, if any; give the pieces left."""
    rest = pieces[0].lstrip()
    segments.text(pieces[0][: len(pieces[0]) - len(rest)], Kind.SUFFIX_OUTSIDE)
    return [rest, *pieces[1:]]


ENDLESS = "endless template"
"""Why a record whose rendering does not end is refused."""

_QUESTIONS = ("Qx1", "Qy2")
_REPLY = "Rz3"
_REPLIED = {"role": "assistant", "content": _REPLY}


class Render(Protocol):
    """Renders messages, with or without a prompt to reply, and no marks."""

    def __call__(self, messages: list[Message], *, prompt: bool) -> str:
        """Return the rendering."""


def find_reply_frame(
    render: Render, regions: Callable[[list[Message]], list[str]], cut: TokenSplitter
) -> tuple[str, ReplyFrame]:
    """Return a template's generation prompt, '' if it varies, and what it writes around replies.

    `regions` cuts the rendering of a question and its reply at its span. Of a template that refuses
    these conversations nothing is known: no header, no openers.
    """
    asks: list[list[Message]] = [[{"role": "user", "content": text}] for text in _QUESTIONS]
    try:
        prompts = {_added(render, messages, cut) for messages in asks}
        before, question, _ = render(asks[0], prompt=False).partition(_QUESTIONS[0])
    except ChatError:
        return "", ReplyFrame()
    prompt = prompts.pop() if len(prompts) == 1 else ""
    openers = frozenset((*cut(prompt)[1:2], *(cut(before)[-2:-1] if question else ())))
    try:
        replied = regions([*asks[0], _REPLIED])
    except ChatError:
        replied = []
    if len(replied) < 3:
        return prompt, ReplyFrame(prompt, openers)
    return prompt, ReplyFrame(_header(replied[-3], prompt), openers, _ends_inside(cut(replied[-2])))


def check_written(render: Render, where: str) -> None:
    """Check that a template writes replies; one that refuses this conversation may.

    Templates of models that see images may take contents as lists of parts alone, and write
    nothing at all for a text.

    Raises:
        UsageError: it leaves the reply out, or does not end; `where` names the template.
    """
    try:
        written = render([{"role": "user", "content": _QUESTIONS[0]}, _REPLIED], prompt=False)
    except ChatError as error:
        if error.reason == ENDLESS:
            raise UsageError(f"{where}: {error.message}") from None
        return
    if _REPLY.casefold() not in written.casefold():
        raise UsageError(
            f"{where}: writes nothing of a reply that is a text, so that nothing would be trained: "
            "it may be for contents of typed parts, such as images; use another --template"
        )


def _header(before: str, prompt: str) -> str:
    """Return as much of the prompt as stands before a span: the rest may be within."""
    lengths = range(len(prompt), 0, -1)
    return next((prompt[:n] for n in lengths if before.endswith(prompt[:n])), "")


def _ends_inside(span: Sequence[str]) -> bool:
    """Return whether a span's last token has nothing but white space behind it."""
    return len(span) > 1 and not span[-1].strip()


def _added(render: Render, messages: list[Message], cut: TokenSplitter) -> str:
    """Return what the prompt to reply adds, in whole tokens: the end may be written otherwise."""
    without, with_prompt = (render(messages, prompt=prompt) for prompt in (False, True))
    if with_prompt.startswith(without):
        return with_prompt[len(without) :]
    old, new = cut(without), cut(with_prompt)
    n_same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), len(new))
    return "".join(new[n_same:])
