"""Reasoning and tool calls that stand inside a reply's text, between tags.

    <think>                        reasoning_content: "2 and 2 are 4"
    2 and 2 are 4           read
    </think>                as     content: "It is 4."

    It is 4.

One block that begins a reply is its reasoning, blocks that end it are its calls. The same tags
anywhere else, and blocks that are not whole, are text.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterable

Tags = tuple[str, str]
"""The tags before and behind a block."""

CALL_TAGS: Tags = ("<tool_call>", "</tool_call>")

THOUGHT_TAGS: Tags = ("<|begin_of_thought|>", "<|end_of_thought|>")

REASONING_TAGS: tuple[Tags, ...] = (("<think>", "</think>"), ("[THINK]", "[/THINK]"), THOUGHT_TAGS)
"""The tags that data sets put around reasoning, and templates or tokenizers may know."""

_SOLUTION_TAGS: Tags = ("<|begin_of_solution|>", "<|end_of_solution|>")
"""What stands around the rest of a reply behind `THOUGHT_TAGS`."""

Span = tuple[int, int]


def leading_block(text: str, tags: Tags) -> tuple[Span, Span] | None:
    """Return where both tags of a block stand that begins a text, behind white space at most."""
    start = 0 if text.startswith(tags[0]) else len(text) - len(text.lstrip())
    if not text.startswith(tags[0], start):
        return None
    inner = start + len(tags[0])
    stop = text.find(tags[1], inner)
    return None if stop < 0 else ((start, inner), (stop, stop + len(tags[1])))


def split_reasoning(text: str, tags: Tags) -> tuple[str, str] | None:
    """Return the reasoning of a leading block and the rest of the text, without newlines between.

    That is how Qwen3's and minimind's templates read such a text themselves.
    """
    block = leading_block(text, tags)
    if block is None:
        return None
    (_, start), (stop, end) = block
    rest = text[end:].lstrip("\n")
    if tags == THOUGHT_TAGS:
        rest = _without_solution_tags(rest)
    return text[start:stop].strip("\n"), rest


def _without_solution_tags(rest: str) -> str:
    block = leading_block(rest, _SOLUTION_TAGS)
    if block is None or rest[block[1][1] :].strip():
        return rest
    return rest[block[0][1] : block[1][0]].strip("\n")


def trailing_blocks(text: str) -> list[tuple[Span, Span]]:
    """Return where the tags of the tool calls stand that end a text, in order; all or none.

    A block that is no call, right before one that is, makes all of them text.
    """
    opens, closes = CALL_TAGS
    found: list[tuple[Span, Span]] = []
    stop = len(text)
    while True:
        stop = _before_white_space(text, stop)
        if not text.endswith(closes, 0, stop):
            return found[::-1]
        inner_stop = stop - len(closes)
        start = text.rfind(opens, 0, inner_stop)
        if start < 0 or read_call(text[start + len(opens) : inner_stop]) is None:
            return []
        found.append(((start, start + len(opens)), (inner_stop, stop)))
        stop = start


def split_calls(text: str) -> tuple[str, list[dict[str, Any]]] | None:
    """Return a text without the tool calls that end it, nor newlines before them, and the calls."""
    blocks = trailing_blocks(text)
    calls = [read_call(text[start[1] : stop[0]]) for start, stop in blocks]
    if not calls:
        return None
    canonical = [{"type": "function", "function": call} for call in calls]
    return text[: blocks[0][0][0]].rstrip("\n"), canonical


def read_call(text: str) -> dict[str, Any] | None:
    """Return the name and arguments of a call in JSON; None where a template would lose some of it.

    That is another key, a key that stands twice, or a number or string that JSON does not have.
    """
    try:
        call = json.loads(text, object_pairs_hook=_unique, parse_constant=_refused)
        # Half a surrogate pair, or a number too large, is not written back as it was read.
        json.dumps(call, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return None
    if not isinstance(call, dict) or call.keys() != {"name", "arguments"}:
        return None
    name, arguments = call["name"], call["arguments"]
    is_whole = isinstance(name, str) and name and isinstance(arguments, dict)
    return {"name": name, "arguments": arguments} if is_whole and _is_bare(name) else None


def _is_bare(name: str) -> bool:
    """Return whether JSON writes a name as it is: templates put it between quotes themselves."""
    return json.dumps(name, ensure_ascii=False) == f'"{name}"'


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    listed = list(pairs)
    found = dict(listed)
    if len(found) < len(listed):
        raise ValueError("a key stands twice")
    return found


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _before_white_space(text: str, stop: int) -> int:
    while stop and text[stop - 1].isspace():
        stop -= 1
    return stop
