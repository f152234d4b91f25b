"""Text that goes on from text before it: encoded without the space that a tokenizer puts in front.

SentencePiece's way puts a space before every text it encodes. A piece that a boundary of the mask
cuts off is no text of its own, so its tokenizer is a variant without that prefix; a proof on
built-in pairs holds the two together against the text encoded whole.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tokmill.errors import TokenizerError
from tokmill.tokenizer.equivalent_json import to_equivalent
from tokmill.tokenizer.tokenizer_json import WHITE_SPACE, adds_prefix, as_text, sequence, steps

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from tokmill.tokenizer.control_tokens import AddedToken
    from tokmill.tokenizer.tokenizer import Tokenizer

_PROBES = ("hello", " hello", "\nhello", "你好", "a", "1", "👍")


def continuation_tokenizer(tokenizer: Tokenizer) -> Tokenizer | None:
    """Give the tokenizer for text that continues text.

    The same object where no prefix is ever put before a text; a variant without it where the
    tokenizer.json can say so; None where it cannot.
    """
    if not tokenizer.json:
        return None
    head = _without_model(tokenizer.json)
    if head is not None and _without_prefix(head) is head:
        return tokenizer
    content = json.loads(tokenizer.json)
    changed = _without_prefix(content)
    if changed is None or changed is content:
        return None if changed is None else tokenizer
    rewritten, rewrites = to_equivalent(changed)
    text = as_text(changed)
    return replace(
        tokenizer,
        kind="json",  # a SentencePiece model itself cannot leave the prefix out
        json=text,
        rewritten_json=as_text(rewritten) if rewrites else "",
        rewrites=rewrites,
    )


def after_control(
    tokenizer: Tokenizer, continuation: Tokenizer | None, strings: Collection[str]
) -> str:
    """Say how the reference encodes text behind a control token: `first` or `continuation`.

    Args:
        tokenizer: the one asked about.
        continuation: what `continuation_tokenizer` gives for it.
        strings: the control tokens in question, all of them added tokens.

    Raises:
        TokenizerError: neither holds, or not the same for all of them.
    """
    if tokenizer.kind == "sentencepiece" and not tokenizer.json:
        return "first"
    behind = _behind(tokenizer, strings)
    for name, variant in (("first", tokenizer), ("continuation", continuation)):
        if variant is not None and all(map(_encodes_so(variant), behind.values())):
            return name
    raise TokenizerError(
        f"{tokenizer.name}: text behind its control tokens is encoded neither as a text nor as the "
        "continuation of one; choose another tokenizer"
    )


def closed_texts(tokenizer: Tokenizer, added: Mapping[str, AddedToken]) -> str:
    """Return a pattern of parsed control tokens; '' if text behind them is never a first text.

    Those behind which the reference encodes text as it does the first of a text are groups of it,
    with the white space that they swallow. Of strings that begin together the longest is the token.
    """
    is_first = _encodes_so(tokenizer)
    closing = {string for string, ids in _behind(tokenizer, added).items() if is_first(ids)}
    if not closing:
        return ""
    choices = []
    for string in sorted(added, key=len, reverse=True):
        swallowed = f"[{WHITE_SPACE}]*" if added[string].rstrip else ""
        choice = re.escape(string) + swallowed
        choices.append(f"({choice})" if string in closing else choice)
    return "|".join(choices)


def _without_model(tokenizer_json: str) -> dict[str, Any] | None:
    """Give what stands before the model, whose vocabulary takes 0.2 s to parse; None if unsure."""
    head, _, _ = tokenizer_json.partition('"model":')
    try:
        content = json.loads(head.rstrip().removesuffix(",") + "}")
    except ValueError:
        return None
    return content if {"normalizer", "pre_tokenizer"} <= set(content) else None


def _without_prefix(content: dict[str, Any]) -> dict[str, Any] | None:
    """Take the prefix out of a tokenizer.json; the very same one where it has none."""
    changed = content
    normalizers = steps(content, "normalizer")
    kept = [step for step in normalizers if step.get("type") != "Prepend"]
    if len(kept) < len(normalizers):
        changed = {**changed, "normalizer": sequence("normalizer", kept) if kept else None}
    splitters = steps(content, "pre_tokenizer")
    adding = [position for position, step in enumerate(splitters) if adds_prefix(step)]
    if not adding:
        return changed
    if adding != [0]:  # before every part of a text, so that its first is nothing special
        return None
    bare = [_bare(splitters[0]), *splitters[1:]]
    return {**changed, "pre_tokenizer": sequence("pre_tokenizer", bare)}


def _bare(step: dict[str, Any]) -> dict[str, Any]:
    if step["type"] == "ByteLevel":
        return {**step, "add_prefix_space": False}
    kept = {key: value for key, value in step.items() if key not in ("add_prefix_space", "str_rep")}
    return {**kept, "prepend_scheme": "never"}


def _behind(tokenizer: Tokenizer, strings: Collection[str]) -> dict[str, list[Sequence[int]]]:
    """Return the ids that the reference has for each probe behind each control token."""
    whole = tokenizer.library()
    whole.encode_special_tokens = False
    ids = {string: whole.token_to_id(string) for string in sorted(strings)}
    return {
        string: [_ids_behind(whole, string + text, ids[string]) for text in _PROBES]
        for string in ids
    }


def _encodes_so(tokenizer: Tokenizer) -> Callable[[list[Sequence[int]]], bool]:
    """Return what says of the probes' ids whether a tokenizer has them, for white space taken off
    as well."""  # noqa: D205, D209
    library = tokenizer.library()
    expected = [library.encode(text, add_special_tokens=False).ids for text in _PROBES]
    stripped = [library.encode(text.lstrip(), add_special_tokens=False).ids for text in _PROBES]
    return lambda found: found in (expected, stripped)


def _ids_behind(library: Any, text: str, control_id: int) -> Sequence[int]:
    ids: list[int] = library.encode(text, add_special_tokens=False).ids
    return ids[ids.index(control_id) + 1 :] if control_id in ids else ids
