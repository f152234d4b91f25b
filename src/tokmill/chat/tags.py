"""Spans from generation tags: a rendering with a mark before and behind each, cut into regions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.chat.conversation import ChatError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokmill.chat.shield import Marks

_CHANGES = "template changes spans"


def regions_by_tags(text: str, marks: Marks, n_replies: int) -> list[str]:
    """Cut a rendering at its marks: what stands before a span, the span, …, what stands behind.

    Spans with nothing between them are one if that makes one span a reply: Phi 3 has its last eos
    in a tag of its own.

    Raises:
        ChatError: the marks are not one pair after another.
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
    """Make sure that the regions are the rendering without marks.

    Raises:
        ChatError: a filter of the template has seen the marks, and done otherwise.
    """
    if "".join(regions) != plain:
        raise ChatError(
            _CHANGES,
            "the template works on what its generation tags hold, so that the spans are unknown: "
            "put the tags around what is written in the end",
        )


def last_alone(regions: list[str], n_replies: int) -> list[str]:
    """Keep the last span alone, that of the last reply, if there is any reply.

    Raises:
        ChatError: whose the last span is, is unknown.
    """
    if len(regions) // 2 != n_replies:
        raise count_differs(n_replies, len(regions) // 2)
    return ["".join(regions[:-2]), *regions[-2:]] if n_replies else regions


def count_differs(n_replies: int, n_spans: int) -> ChatError:
    """Give the error of a template that does not mark one span for each reply."""
    return ChatError(
        "turns and spans differ",
        f"{n_spans} generation blocks for {n_replies} assistant messages: cannot match them",
    )


def _joined(regions: list[str], n_replies: int) -> list[str]:
    joined = regions[:2]
    for i in range(2, len(regions) - 1, 2):
        if regions[i]:
            joined += regions[i : i + 2]
        else:
            joined[-1] += regions[i + 1]
    joined += regions[2:][-1:]
    return joined if len(joined) // 2 == n_replies else regions
