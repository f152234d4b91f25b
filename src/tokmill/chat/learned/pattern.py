"""A pattern: the segments that a template writes for a sequence of roles, with places for contents.

It is learned from a conversation with marks in place of contents, which the template itself
renders. It must then foretell other renderings: of contents with all kinds of characters, and of
contents with white space at their ends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tokmill.chat.segments import ROLES, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    import numpy.typing as npt

    from tokmill.chat.segments import Columns

    Render = Callable[[Sequence[int], Sequence[str]], Columns | None]
    """Returns the segments of roles and their contents; None if the template refuses them."""

KEEPS, STRIPS, UNKNOWN = 0, 1, 2
"""What a template does with white space at both ends of a content."""

BLANKS = "".join(character for character in map(chr, range(0x3001)) if character.isspace())
"""White space, as `str.strip` removes it."""

_MARK = re.compile(r"Zq(\d{4})qZ")
_ENDS = tuple(blank * 5 for blank in (" ", "\n", "\t", "\r", "\x1f\x85\xa0\u2028\u3000"))
"""Longer than white space in a template, so that it is known what was stripped."""

_RICH = (
    "".join(map(chr, range(32, 127)))
    + "  \n\n\n\t\r\n \x00\x7f é ß İ 中文。\u2028 \u200d \U0001f44d "
    + "&amp; \\n \\u0041 %s {0} {{ x }}"
)


@dataclass(frozen=True, slots=True)
class Pattern:
    """The segments of one sample.

    `pieces`: literals, and '' where a content stands. `contents`: (n_pieces,) the number of the
    message whose content it is, -1 for a literal. `segments`: (n_segments,) the first piece of
    each. `ids`, `kinds`, `turns`: (n_segments,). `roles`: (n_turns,) index in `ROLES`. `ends`:
    (n_messages,) what the template does with white space at the ends of contents.
    """

    pieces: Sequence[str]
    contents: npt.NDArray[np.int64]
    segments: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int32]
    kinds: npt.NDArray[np.int64]
    turns: npt.NDArray[np.int64]
    roles: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]

    def foretells(self, contents: Sequence[str], columns: Columns | None) -> bool:
        """Return whether these are the segments with these contents."""
        return columns is not None and (
            self._texts(contents) == columns.text.to_pylist()
            and np.array_equal(self.ids, columns.ids)
            and np.array_equal(self.kinds, columns.table.kinds)
            and np.array_equal(self.turns, columns.table.turns)
            and np.array_equal(self.roles, columns.table.roles)
            and bool(np.isnan(columns.table.given).all())
        )

    def _texts(self, contents: Sequence[str]) -> list[str]:
        parts = [
            piece if number < 0 else contents[number]
            for number, piece in zip(self.contents.tolist(), self.pieces, strict=True)
        ]
        starts = self.segments.tolist()
        stops = [*starts[1:], len(parts)]
        return ["".join(parts[i:j]) for i, j in zip(starts, stops, strict=True)]


class Joints:
    """Finds literals beside which a content could complete a control token.

    `prompt`: the text that asks for a reply, which is looked for before replies.
    """

    def __init__(self, control: Collection[str], prompt: str) -> None:
        self._beginnings = {string[:n] for string in control for n in range(1, len(string))}
        self._endings = {string[n:] for string in control for n in range(1, len(string))}
        self._longest = max(map(len, control), default=1)
        self._prompts = tuple(prompt[:n] for n in range(1, len(prompt) + 1))

    def are_safe(self, pattern: Pattern) -> bool:
        """Return whether no content can become a part of a control token, or of the prompt."""
        places = np.flatnonzero(pattern.contents >= 0).tolist()
        pieces, last = pattern.pieces, len(pattern.pieces) - 1
        return all(
            not self._may_begin(pieces[i - 1] if i else "\n")
            and (i == last or not self._may_end(pieces[i + 1]))
            for i in places
        ) and not self._may_prompt(pattern)

    def _may_begin(self, before: str) -> bool:
        lengths = range(1, min(len(before), self._longest) + 1)
        return not before or any(before[-n:] in self._beginnings for n in lengths)

    def _may_end(self, behind: str) -> bool:
        lengths = range(1, min(len(behind), self._longest) + 1)
        return (
            not behind
            or any(behind[:n] in self._endings for n in lengths)
            or any(ending.startswith(behind) for ending in self._endings)
        )

    def _may_prompt(self, pattern: Pattern) -> bool:
        """Return whether a content could continue as the prompt does that a reply lacks."""
        reply = ROLES.index("assistant")
        for turn in np.flatnonzero(pattern.roles == reply).tolist() if self._prompts else ():
            here = np.flatnonzero(pattern.turns == turn)
            if (pattern.kinds[here] == Kind.HEADER).any():
                continue
            first = int(pattern.segments[here[0]])
            before = pattern.pieces[first - 1] if first else ""
            if any(prompt.endswith(before) for prompt in self._prompts):
                return True
        return False


def learn(
    roles: Sequence[int], render: Render, joints: Joints, avoided: Collection[str]
) -> Pattern | None:
    """Return the pattern of a sequence of roles; None if its renderings follow none.

    `avoided`: strings that no content holds.
    """
    marks = [f"Zq{number:04d}qZ" for number in range(len(roles))]
    columns = render(roles, marks)
    if columns is None:
        return None
    pattern = _parsed(columns, len(roles))
    if not joints.are_safe(pattern):
        return None
    contents = [_without(f"a{_RICH}{mark}", avoided) for mark in marks]
    if not pattern.foretells(contents, render(roles, contents)):
        return None
    ends = _find_ends(marks, partial(render, roles))
    given = [
        mark if way == UNKNOWN else f"{_ENDS[i % len(_ENDS)]}{mark}{_ENDS[i // 2 % len(_ENDS)]}"
        for i, (mark, way) in enumerate(zip(marks, ends, strict=True))
    ]
    written = [
        mark if way == STRIPS else text for mark, text, way in zip(marks, given, ends, strict=True)
    ]
    if not pattern.foretells(written, render(roles, given)):
        return pattern
    return replace(pattern, ends=np.array(ends))


def _parsed(columns: Columns, n_messages: int) -> Pattern:
    pieces: list[str] = []
    contents: list[int] = []
    segments = []
    for text in columns.text.to_pylist():
        segments.append(len(pieces))
        for i, piece in enumerate(_MARK.split(text)):
            if i % 2 or piece:
                pieces.append("" if i % 2 else piece)
                contents.append(int(piece) if i % 2 else -1)
    table = columns.table
    return Pattern(
        pieces,
        np.array(contents, np.int64),
        np.array(segments, np.int64),
        columns.ids,
        table.kinds,
        table.turns,
        table.roles,
        np.full(n_messages, UNKNOWN),
    )


def _find_ends(
    marks: Sequence[str], render: Callable[[Sequence[str]], Columns | None]
) -> list[int]:
    """Return what a template does with white space at the ends of each content."""
    found = []
    for end in _ENDS:
        columns = render([f"{end}{mark}{end}" for mark in marks])
        if columns is None:
            return [UNKNOWN] * len(marks)
        text = "".join(columns.text.to_pylist())
        found.append([_way(text, mark, end) for mark in marks])
    return [ways[0] if len(set(ways)) == 1 else UNKNOWN for ways in zip(*found, strict=True)]


def _way(text: str, mark: str, end: str) -> int:
    if f"{end}{mark}{end}" in text:
        return KEEPS
    return UNKNOWN if f"{end}{mark}" in text or f"{mark}{end}" in text else STRIPS


def _without(text: str, strings: Collection[str]) -> str:
    """Return a text without any of the strings."""
    while found := [string for string in strings if string and string in text]:
        for string in found:
            text = text.replace(string, "")
    return text
