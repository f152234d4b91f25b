"""A rendering with known spans, written as the turns of a sample.

The parts of a rendering are text, span, text, …, text; the spans have odd indices. A span is an
assistant turn, with the header, end of turn and suffix around it; or the content of another role,
with the end of turn behind it. The rest of the text between two spans is one turn of another role.
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
    from tokmill.chat.segments import Sample


@dataclass(frozen=True, slots=True)
class ReplyFrame:
    """The text that a template writes around a reply.

    `header`: the text right before a span, of the generation prompt, or ''. `inside`: the rest of
    that prompt, with which spans begin. `openers`: control tokens that begin a turn. `ends_inside`:
    whether a span holds its end of turn.
    """

    header: str = ""
    inside: str = ""
    openers: frozenset[str] = frozenset()
    ends_inside: bool = True


class SpanWriter:
    """Writes the parts of a rendering into a sample.

    With `next_role_ends` the token of the next role is the end of a turn that has none of its own.
    """

    def __init__(
        self, split: TokenSplitter, frame: ReplyFrame, *, next_role_ends: bool = False
    ) -> None:
        self._split = split
        self._next_role_ends = next_role_ends
        self._frame = frame
        self._header = split(frame.header)

    def write(
        self,
        parts: Sequence[str],
        roles: Sequence[str],
        weights: Sequence[float | None],
        sample: Sample,
        *,
        separator: str = "",
        speakers: Sequence[str] = (),
    ) -> None:
        """Write parts: texts between spans have `roles`, spans have `weights`.

        `speakers`: the role of each span, if some are not replies. `separator`: the character of
        escaped control strings, which is removed.
        """
        self._check_edges(parts)
        header = self._frame.header
        has_ended = True
        for i, role in enumerate(roles):
            before = parts[2 * i]
            is_last = 2 * i + 1 == len(parts)
            is_reply = not is_last and (not speakers or speakers[i] == "assistant")
            has_header = is_reply and header != "" and before.endswith(header)
            pieces = self._pieces(before[: -len(header)] if has_header else before, separator)
            if not has_ended:
                pieces = self._write_end(pieces, sample)
            elif i:
                pieces = _write_suffix(pieces, sample)
            if len(pieces) > 1 or pieces[0]:
                sample.begin_turn(role)
                sample.pieces(pieces, Kind.OTHER)
            if is_last:
                return
            if not is_reply:
                sample.begin_turn(speakers[i], weights[i])
                sample.pieces(self._pieces(parts[2 * i + 1], separator), Kind.CONTENT)
                has_ended = False
                continue
            sample.begin_turn("assistant", weights[i])
            if has_header:
                sample.pieces(self._header, Kind.HEADER)
            span, inside = parts[2 * i + 1], self._frame.inside
            if (
                inside
                and span.startswith(inside)
                and not self._split.crosses(inside, span[len(inside) :])
            ):
                sample.pieces(self._split(inside), Kind.HEADER_INSIDE)
                span = span[len(inside) :]
            has_ended = self._write_span(self._pieces(span, separator), sample)

    def _check_edges(self, parts: Sequence[str]) -> None:
        for i in range(len(parts) - 1):
            if self._split.crosses(parts[i], parts[i + 1]):
                raise ChatError(
                    "control token across spans",
                    "a control token begins on one side of the edge of a trained span, and ends on "
                    "the other",
                )

    def _pieces(self, text: str, separator: str) -> list[str]:
        pieces = self._split(text)
        return [piece.replace(separator, "") for piece in pieces] if separator else pieces

    def _write_span(self, pieces: list[str], sample: Sample) -> bool:
        """Write a span; return whether its end of turn was in it."""
        suffix = pieces[-1]
        if not self._frame.ends_inside or len(pieces) == 1 or suffix.strip():
            sample.pieces(pieces, Kind.CONTENT)
            return False
        sample.pieces(pieces[:-2], Kind.CONTENT)
        sample.control(pieces[-2], Kind.EOT)
        sample.text(suffix, Kind.SUFFIX)
        return True

    def _write_end(self, pieces: list[str], sample: Sample) -> list[str]:
        """Write the end of turn right behind a span; return the pieces left."""
        is_opener = len(pieces) > 1 and pieces[1] in self._frame.openers
        if len(pieces) == 1 or pieces[0] or (is_opener and not self._next_role_ends):
            return pieces
        sample.control(pieces[1], Kind.EOT_OUTSIDE)
        return pieces[2:] if is_opener else _write_suffix(pieces[2:], sample)


def _write_suffix(pieces: list[str], sample: Sample) -> list[str]:
    """Write the white space behind a reply, if any; return the pieces left."""
    rest = pieces[0].lstrip()
    sample.text(pieces[0][: len(pieces[0]) - len(rest)], Kind.SUFFIX_OUTSIDE)
    return [rest, *pieces[1:]]


_QUESTIONS = ("Qx1", "Qy2")
_REPLY = "Rz3"
_REPLIED = {"role": "assistant", "content": _REPLY}


class Render(Protocol):
    """Renders messages, with or without a generation prompt."""

    def __call__(self, messages: list[Message], *, prompt: bool) -> str:
        """Return the rendering."""


def find_reply_frame(
    render: Render, parts_of: Callable[[list[Message]], list[str]], split: TokenSplitter
) -> tuple[str, ReplyFrame]:
    """Return a template's generation prompt, '' if it varies, and the text around replies.

    Renders small conversations; `parts_of` returns the parts of a rendering. If the template
    refuses them, header and openers stay unknown.
    """
    asks: list[list[Message]] = [[{"role": "user", "content": text}] for text in _QUESTIONS]
    try:
        prompts = {_added(render, messages, split) for messages in asks}
        before, question, _ = render(asks[0], prompt=False).partition(_QUESTIONS[0])
    except ChatError:
        return "", ReplyFrame()
    prompt = prompts.pop() if len(prompts) == 1 else ""
    openers = frozenset((*split(prompt)[1:2], *(split(before)[-2:-1] if question else ())))
    try:
        replied = parts_of([*asks[0], _REPLIED])
    except ChatError:
        replied = []
    if len(replied) < 3:
        return prompt, ReplyFrame(prompt, openers=openers)
    header = _header(replied[-3], prompt)
    inside = prompt[len(header) :]
    return prompt, ReplyFrame(
        header,
        inside if replied[-2].startswith(inside) else "",
        openers,
        _ends_inside(split(replied[-2])),
    )


def check_written(render: Render, where: str) -> None:
    """Check that a template writes the text of replies; it may refuse this conversation.

    Templates of models that see images may write nothing for a content that is no list of parts.

    Raises:
        UsageError: the template leaves the reply out; `where` names it.
    """
    try:
        written = render([{"role": "user", "content": _QUESTIONS[0]}, _REPLIED], prompt=False)
    except ChatError:
        return
    if _REPLY.casefold() not in written.casefold():
        raise UsageError(
            f"{where}: writes nothing of a reply that is a text, so that nothing would be trained: "
            "perhaps it needs contents of typed parts, such as images; use another --template"
        )


def _header(before: str, prompt: str) -> str:
    """Return the beginning of the prompt that precedes a span: the rest may be in the span."""
    lengths = range(len(prompt), 0, -1)
    return next((prompt[:n] for n in lengths if before.endswith(prompt[:n])), "")


def _ends_inside(span: Sequence[str]) -> bool:
    """Return whether only white space follows a span's last token."""
    return len(span) > 1 and not span[-1].strip()


def _added(render: Render, messages: list[Message], split: TokenSplitter) -> str:
    """Return the text that a generation prompt adds, from the first token that differs."""
    without, with_prompt = (render(messages, prompt=prompt) for prompt in (False, True))
    if with_prompt.startswith(without):
        return with_prompt[len(without) :]
    plain, prompted = split(without), split(with_prompt)
    n_same = next(
        (i for i, (a, b) in enumerate(zip(plain, prompted, strict=False)) if a != b), len(prompted)
    )
    return "".join(prompted[n_same:])
