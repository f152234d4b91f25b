"""Reads a file tokenizer.json: its content without the merges, and its text for the engines.

The merges are most of a file, and nothing here needs them: the `tokenizers` library checks them. To
parse them takes half of the time, and 80 MB for 300,000 of them.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from tokmill.errors import TokenizerError
from tokmill.tokenizer.tokenizer_json import Content, as_text, find_values

if TYPE_CHECKING:
    from collections.abc import Mapping

UNUSED_PARTS = ("post_processor", "truncation", "padding")
"""Parts of a tokenizer.json that add tokens, truncate or pad."""

_MERGES = re.compile(r'"merges"\s*:\s*(?=\[)')
_SPACE = " \t\n\r"
_END = "}}"
"""What follows the merges if they are the last value of the model, and the model is the file's."""


def decoded(data: bytes, *, where: str) -> str:
    """Return the text of a JSON file, as `json.loads` decodes it.

    Raises:
        TokenizerError: it is not in its encoding.
    """
    try:
        return data.decode(json.detect_encoding(data), "surrogatepass")
    except ValueError as error:
        raise TokenizerError(f"{where}: not valid JSON: {error}") from None


def parsed(text: str, *, where: str) -> Content:
    """Parse a tokenizer.json.

    Raises:
        TokenizerError: it is no tokenizer.json, or it encodes at random (dropout).
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{where}: not valid JSON: {error}") from None
    model = content.get("model") if isinstance(content, dict) else None
    if not isinstance(model, dict):
        raise TokenizerError(f"{where}: not a tokenizer.json: it has no object 'model'")
    if model.get("dropout"):
        raise TokenizerError(
            f"{where}: model.dropout is {model['dropout']}, which makes ids random; set it to null"
        )
    found: Content = content
    return found


def without_merges(text: str) -> str:
    """Return a tokenizer.json with an empty list of merges, if the merges stand at its end.

    Otherwise the text itself. Only the shape around the list is looked at: if the list is broken,
    the library refuses the file.
    """
    starts = [match.end() for match in _MERGES.finditer(text)]
    stop = text.rfind("]") + 1
    if len(starts) != 1 or stop <= starts[0] or "".join(text[stop:].split()) != _END:
        return text
    if _has_key(text, starts[0], stop):
        return text
    return f"{text[: starts[0]]}[]{text[stop:]}"


def cleaned_text(text: str, content: Mapping[str, object]) -> str:
    """Return the text of a tokenizer.json without `UNUSED_PARTS`.

    `content`: the parsed text, with or without its merges. The parts are replaced in the text: to
    write 150,000 merges again takes 0.2 s. If a key is not found once, everything is written again.
    """
    whole = text
    for key in UNUSED_PARTS:
        if content.get(key) is None:
            continue
        found = list(find_values(text, key))
        if len(found) != 1:
            return as_text({**json.loads(whole), **dict.fromkeys(UNUSED_PARTS)})
        _, start, stop = found[0]
        text = f"{text[:start]}null{text[stop:]}"
    return text


def _has_key(text: str, start: int, stop: int) -> bool:
    """Return whether a colon in a part of a JSON text may follow a key.

    In a list of strings or pairs, a quote before a colon begins a string, so a bracket, a comma or
    white space precedes it, or it is escaped.
    """
    at = start
    while (at := text.find(":", at, stop)) >= 0:
        before = at - 1
        while text[before] in _SPACE:
            before -= 1
        if text[before] == '"' and text[before - 1] not in _SPACE + "[,\\":
            return True
        at += 1
    return False
