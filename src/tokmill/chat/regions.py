"""A rendering, cut at its trained spans, written as turns and segments.

Regions alternate: what stands before the first span, the span, what stands before the next, …, what
stands behind the last; an odd number of strings. A span with the header, end of turn and suffix
around it is an assistant turn; the rest between two spans is one turn of whoever spoke there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokmill.chat.conversation import ChatError
from tokmill.chat.segments import Kind
from tokmill.chat.shield import control_pattern

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tokmill.chat.segments import Segments


@dataclass(frozen=True, slots=True)
class Around:
    """What a template writes around a reply.

    `header`: what stands right before, the generation prompt, or ''. `openers`: control tokens that
    begin a turn. `ends_inside`: whether a span holds its end of turn.
    """

    header: str = ""
    openers: frozenset[str] = frozenset()
    ends_inside: bool = True


class Cutter:
    """Cuts text at control tokens; of strings that begin together the longest is the token."""

    def __init__(self, control: Collection[str]) -> None:
        self._split = re.compile(f"({control_pattern(control)})").split
        self._reach = max(map(len, control), default=1) - 1
        # A token that stands across an edge has one of these before it, and one behind.
        self._before = frozenset("".join(string[:-1] for string in control))
        self._behind = frozenset("".join(string[1:] for string in control))

    def __call__(self, text: str) -> list[str]:
        """Give text, token, text, …, text: tokens stand at odd places."""
        return self._split(text)

    def crosses(self, left: str, right: str) -> bool:
        """Say whether a token begins in one text and ends in the next."""
        if left[-1:] not in self._before or right[:1] not in self._behind:
            return False
        before = left[-self._reach :]
        position = 0
        for i, piece in enumerate(self._split(before + right[: self._reach])):
            if i % 2 and position < len(before) < position + len(piece):
                return True
            position += len(piece)
        return False


class RegionWriter:
    """Writes regions into segments; see the top of the module."""

    def __init__(self, cut: Cutter, around: Around) -> None:
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

        Raises:
            ChatError: a control token stands across the edge of a span.
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
