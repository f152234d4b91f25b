"""A tokenizer's added tokens, their strings in texts, and variants with more control tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tokmill.errors import TokenizerError
from tokmill.tokenizer.sentencepiece_model import control_pieces, read_model
from tokmill.tokenizer.tokenizer_json import Content, read_added_tokens, replace_added_tokens

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from tokmill.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class AddedToken:
    """An added token as a tokenizer.json describes it.

    `lstrip`, `rstrip`: a match includes the white space before it, after it. `normalized`: matched
    in normalized text.
    """

    id: int
    content: str
    special: bool
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool = False


_FLAGS = ("special", "lstrip", "rstrip", "single_word", "normalized")


def added_tokens(tokenizer: Tokenizer) -> dict[str, AddedToken]:
    """Return all added tokens by their strings, in the order of their ids.

    Those of a SentencePiece model are its control pieces and the unknown one, all special.
    """
    if tokenizer.kind == "sentencepiece":
        pieces = control_pieces(read_model(tokenizer.data, where=tokenizer.name))
        return {content: AddedToken(id_, content, special=True) for id_, content in pieces}
    entries = read_added_tokens(tokenizer.json)
    ids = _ids(tokenizer, entries)
    tokens = [
        AddedToken(
            ids[entry["content"]],
            str(entry["content"]),
            **{flag: bool(entry.get(flag)) for flag in _FLAGS},
        )
        for entry in entries
    ]
    return {token.content: token for token in sorted(tokens, key=lambda token: token.id)}


def _ids(tokenizer: Tokenizer, entries: Sequence[Content]) -> dict[str, int]:
    """Return the ids of added tokens by string.

    The library continues the vocabulary's numbers, and ignores the ids of a file that leaves a gap.
    Then the file's largest id lies outside the vocabulary, and the library is asked, in 0.5 s.
    """
    ids = {str(entry["content"]): int(entry["id"]) for entry in entries}
    special = {ids[entry["content"]] for entry in entries if entry.get("special")}
    largest = max(ids.values(), default=0)
    if special.issubset(tokenizer.special_ids) and largest < tokenizer.vocab_size:
        return ids
    from tokenizers import Tokenizer as Library

    by_id = Library.from_str(tokenizer.json).get_added_tokens_decoder()
    return {token.content: id_ for id_, token in by_id.items()}


def control_token_strings(tokenizer: Tokenizer) -> list[str]:
    """Return the strings of a tokenizer's special added tokens, in the order of their ids."""
    return [token.content for token in added_tokens(tokenizer).values() if token.special]


def contains_any(text: pa.LargeStringArray, strings: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return whether each of n documents contains one of some strings: (n,) bool."""
    import pyarrow.compute as pc

    wanted = [string for string in strings if string]
    if not wanted:
        return np.zeros(len(text), np.bool_)
    matches = pc.match_substring_regex(text, "|".join(map(re.escape, wanted)))
    result: npt.NDArray[np.bool_] = matches.to_numpy(zero_copy_only=False)
    return result


def with_control_tokens(tokenizer: Tokenizer, strings: Collection[str]) -> Tokenizer:
    """Return a variant of the tokenizer in which some added tokens are special.

    Engines encode the string of a special token in a text as ordinary text; the `<think>` of a chat
    template is often not special in the file. The ids of these tokens may now be written, so they
    count for `max_emittable_id`; every other field stays.

    Raises:
        TokenizerError: a string is no added token.
    """
    from tokenizers import AddedToken as LibraryToken

    known = added_tokens(tokenizer)
    for string in strings:
        if string not in known:
            raise TokenizerError(
                f"{tokenizer.name}: {string!r} is not among its added tokens, so its string in a "
                "text cannot be told from a control token; choose another template or tokenizer"
            )
    ids = {known[string].id for string in strings}
    marked = {string for string in strings if not known[string].special}
    text = _with_special(tokenizer.json, marked)
    # What is loaded is marked: to load 150,000 tokens again takes 0.5 s.
    if tokenizer.spare and tokenizer.spare[-1][0] is tokenizer.json:
        library = tokenizer.spare[-1][1]
        for token in known.values():
            if token.content in marked:
                flags = {flag: getattr(token, flag) for flag in _FLAGS} | {"special": True}
                library.add_special_tokens([LibraryToken(token.content, **flags)])
        tokenizer.spare[-1] = (text, library)
    return replace(
        tokenizer,
        json=text,
        rewritten_json=_with_special(tokenizer.rewritten_json, marked),
        special_ids=tuple(sorted(ids.union(tokenizer.special_ids))),
        max_emittable_id=max(ids | {tokenizer.max_emittable_id}),
    )


def _with_special(text: str, strings: Collection[str]) -> str:
    """Return a tokenizer.json with added tokens marked special; the same object if none is new."""
    if not strings or not text:
        return text
    return replace_added_tokens(
        text,
        lambda entries: [
            {**entry, "special": True} if entry["content"] in strings else entry
            for entry in entries
        ],
    )
