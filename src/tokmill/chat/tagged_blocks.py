"""Blocks between tags in the text of replies: reasoning that begins one, calls that end one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tokmill.chat.control_strings import CALL_TAGS, THOUGHT_TAGS

if TYPE_CHECKING:
    from tokmill.chat.control_strings import Tags

Span = tuple[int, int]

_SOLUTION_TAGS: Tags = ("<|begin_of_solution|>", "<|end_of_solution|>")
"""The tags of the rest of a reply behind `THOUGHT_TAGS`."""


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
    solution = leading_block(rest, _SOLUTION_TAGS) if tags == THOUGHT_TAGS else None
    if solution is not None and not rest[solution[1][1] :].strip():
        rest = rest[solution[0][1] : solution[1][0]].strip("\n")
    return text[start:stop].strip("\n"), rest


def trailing_blocks(text: str) -> list[tuple[Span, Span]]:
    """Return the positions of the tags of the tool calls that end a text, in order.

    If a block right before them is no valid call, all of them are text.
    """
    opens, closes = CALL_TAGS
    blocks: list[tuple[Span, Span]] = []
    stop = len(text)
    while True:
        while stop and text[stop - 1].isspace():
            stop -= 1
        if not text.endswith(closes, 0, stop):
            return blocks[::-1]
        inner_stop = stop - len(closes)
        start = text.rfind(opens, 0, inner_stop)
        if start < 0 or read_call(text[start + len(opens) : inner_stop]) is None:
            return []
        blocks.append(((start, start + len(opens)), (inner_stop, stop)))
        stop = start


def read_call(text: str) -> dict[str, Any] | None:
    """Return the name and arguments of a call in JSON; None if a template would lose some of it.

    Such as another key, a repeated key, or a number or string that JSON cannot represent.
    """
    try:
        call = json.loads(text, object_pairs_hook=_unique)
        # Refuses NaN, numbers too large and half a surrogate pair: JSON has none of them.
        json.dumps(call, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return None
    if not isinstance(call, dict) or call.keys() != {"name", "arguments"}:
        return None
    name, arguments = call["name"], call["arguments"]
    # Templates put the name between quotes themselves, so that it must need no escapes.
    is_plain = bool(name) and json.dumps(name, ensure_ascii=False) == f'"{name}"'
    is_call = is_plain and isinstance(arguments, dict)
    return {"name": name, "arguments": arguments} if is_call else None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a repeated key")
    return members
