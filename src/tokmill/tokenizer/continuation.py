"""Text that continues other text: encoded without the space that a tokenizer puts in front.

SentencePiece tokenizers put a space before every text. A text that begins at a boundary of the mask
is not a new text, so it is encoded by a variant of the tokenizer without that prefix. A check on
built-in pairs (`engines.continuation_check`) compares the result with the text in one piece.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tokmill.errors import TokenizerError
from tokmill.tokenizer.tokenizer_json import (
    Content,
    adds_prefix,
    step_parts,
    steps,
    with_steps,
    with_values,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from tokmill.tokenizer.tokenizer import Tokenizer

_PROBES = ("hello", " hello", "\nhello", "你好", "a", "1", "👍")


def continuation_tokenizer(tokenizer: Tokenizer) -> Tokenizer | None:
    """Return the tokenizer for text that continues other text.

    The same object if it puts no prefix before a text, a variant without the prefix if its
    tokenizer.json allows one, else None.
    """
    if not tokenizer.json:
        return None
    parts = step_parts(tokenizer.json)
    normalizers, splitters = steps(parts, "normalizer"), steps(parts, "pre_tokenizer")
    kept = [step for step in normalizers if step.get("type") != "Prepend"]
    adding = [position for position, step in enumerate(splitters) if adds_prefix(step)]
    if adding not in ([], [0]):  # before every pretoken
        return None
    changed: Content = {}
    if len(kept) < len(normalizers):
        changed |= with_steps({}, "normalizer", kept)
    if adding:
        splitters = [_without_prefix_option(splitters[0]), *splitters[1:]]
        changed |= with_steps({}, "pre_tokenizer", splitters)
    if not changed:
        return tokenizer
    # A SentencePiece model always adds the prefix.
    return replace(tokenizer, kind="json", json=with_values(tokenizer.json, changed))


def after_control(
    tokenizer: Tokenizer, continuation: Tokenizer | None, strings: Collection[str]
) -> str:
    """Return how the reference encodes text after a control token: `first` or `continuation`.

    `strings`: the control tokens to check, all of them added tokens.

    Raises:
        TokenizerError: neither, or not the same for all of them.
    """
    if tokenizer.kind == "sentencepiece" and not tokenizer.json:
        return "first"
    after = _ids_after(tokenizer, strings)
    for name, variant in (("first", tokenizer), ("continuation", continuation)):
        if variant is not None and all(map(_encodes_so(variant), after.values())):
            return name
    raise TokenizerError(
        f"{tokenizer.name}: text after its control tokens is encoded neither like a first text nor "
        "like a continuation; choose another tokenizer"
    )


def _without_prefix_option(step: Content) -> Content:
    if step["type"] == "ByteLevel":
        return {**step, "add_prefix_space": False}
    kept = {key: value for key, value in step.items() if key not in ("add_prefix_space", "str_rep")}
    return {**kept, "prepend_scheme": "never"}


def _ids_after(tokenizer: Tokenizer, strings: Collection[str]) -> dict[str, list[Sequence[int]]]:
    """Return the reference's ids of each probe after each control token."""
    library = tokenizer.library()
    library.encode_special_tokens = False

    def ids_of(text: str, control_id: int) -> Sequence[int]:
        ids: list[int] = library.encode(text, add_special_tokens=False).ids
        return ids[ids.index(control_id) + 1 :] if control_id in ids else ids

    return {
        string: [ids_of(string + text, library.token_to_id(string)) for text in _PROBES]
        for string in sorted(strings)
    }


def _encodes_so(tokenizer: Tokenizer) -> Callable[[list[Sequence[int]]], bool]:
    """Return a predicate: ids of the probes are this tokenizer's, with or without leading space."""
    library = tokenizer.library()

    def ids_of(texts: Sequence[str]) -> list[Any]:
        return [library.encode(text, add_special_tokens=False).ids for text in texts]

    expected = (ids_of(_PROBES), ids_of([text.lstrip() for text in _PROBES]))
    return lambda ids: ids in expected
