"""Reasoning and tool calls between tags inside the text of a reply.

    <think>                        reasoning_content: "2 and 2 are 4"
    2 and 2 are 4           read
    </think>                as     content: "It is 4."

    It is 4.

A block at the beginning of a reply is its reasoning, blocks at its end are its calls. The same tags
elsewhere, and blocks without an end, are text. A reply may lack the opening tag of its reasoning,
where the prompt that asked for it held the tag.
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
"""The tags that data sets use for reasoning; templates or tokenizers may know them."""

_SOLUTION_TAGS: Tags = ("<|begin_of_solution|>", "<|end_of_solution|>")
"""The tags of the rest of a reply behind `THOUGHT_TAGS`."""

Span = tuple[int, int]


def opened(text: str, tags: Tags) -> str:
    """Return a text with the opening tag of its reasoning, if it has only the closing one.

    As servers of DeepSeek-R1, QwQ and Qwen3-Thinking return replies. Not for [/THINK], which
    ordinary text may hold by chance.
    """
    reasoning, closes, _ = text.partition(tags[1])
    if not closes or tags[0] in reasoning or closes.startswith("["):
        return text
    return tags[0] + "\n" + text.lstrip("\n")


def leading_block(text: str, tags: Tags) -> tuple[Span, Span] | None:
    """Return the positions of both tags of a block that begins a text; white space may precede."""
    start = 0 if text.startswith(tags[0]) else len(text) - len(text.lstrip())
    if not text.startswith(tags[0], start):
        return None
    inner = start + len(tags[0])
    stop = text.find(tags[1], inner)
    return None if stop < 0 else ((start, inner), (stop, stop + len(tags[1])))


def split_reasoning(text: str, tags: Tags) -> tuple[str, str] | None:
    """Return the reasoning of a leading block and the rest of the text, without newlines between.

    The templates of Qwen3 and minimind read such a text in the same way.
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
    """Return the positions of the tags of the tool calls that end a text, in order.

    If a block right before them is no valid call, all of them are text.
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
    """Return a text without the tool calls at its end and newlines before them, and the calls."""
    blocks = trailing_blocks(text)
    calls = [read_call(text[start[1] : stop[0]]) for start, stop in blocks]
    if not calls:
        return None
    canonical = [{"type": "function", "function": call} for call in calls]
    return text[: blocks[0][0][0]].rstrip("\n"), canonical


def read_call(text: str) -> dict[str, Any] | None:
    """Return the name and arguments of a call in JSON; None if a template would lose some of it.

    Such as another key, a repeated key, or a number or string that JSON cannot represent.
    """
    try:
        call = json.loads(text, object_pairs_hook=_unique, parse_constant=_refused)
        # Refuses half a surrogate pair and numbers too large: JSON would write them otherwise.
        json.dumps(call, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return None
    if not isinstance(call, dict) or call.keys() != {"name", "arguments"}:
        return None
    name, arguments = call["name"], call["arguments"]
    if not (isinstance(name, str) and name and isinstance(arguments, dict)):
        return None
    # Templates put the name between quotes themselves, so that it must need no escapes.
    is_plain = json.dumps(name, ensure_ascii=False) == f'"{name}"'
    return {"name": name, "arguments": arguments} if is_plain else None


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    listed = list(pairs)
    found = dict(listed)
    if len(found) < len(listed):
        raise ValueError("a repeated key")
    return found


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _before_white_space(text: str, stop: int) -> int:
    while stop and text[stop - 1].isspace():
        stop -= 1
    return stop
