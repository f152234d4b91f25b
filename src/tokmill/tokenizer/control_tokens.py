"""A tokenizer's added tokens, their strings in texts, and variants with more control tokens."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tokmill.errors import TokenizerError
from tokmill.tokenizer.tokenizer_json import keep_spare, spare_libraries, with_values

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from tokmill.tokenizer.files import AddedToken
    from tokmill.tokenizer.tokenizer import Tokenizer


def added_tokens(tokenizer: Tokenizer) -> dict[str, AddedToken]:
    """Return all added tokens by their strings, in the order of their ids."""
    return {token.content: token for token in tokenizer.added}


def control_token_strings(tokenizer: Tokenizer) -> list[str]:
    """Return the strings of a tokenizer's special added tokens, in the order of their ids."""
    return [token.content for token in tokenizer.added if token.special]


def kept_as_text(tokenizer: Tokenizer) -> list[str]:
    """Return the added tokens whose strings in a message stay text, in the order of their ids.

    All special ones, and the others, such as `<|fim_prefix|>`, except those that encode ordinary
    text: runs of white space (GPT-NeoX), single characters, and words of letters and digits.
    """
    return [t.content for t in tokenizer.added if t.special or not _is_ordinary(t.content)]


def _is_ordinary(content: str) -> bool:
    joined = "".join(content.split())
    return len(joined) < 2 or joined.isalnum()


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
    added = tuple(t._replace(special=t.special or t.content in marked) for t in tokenizer.added)
    text = tokenizer.json
    if marked and text:
        text = with_values(text, {"added_tokens": [token._asdict() for token in added]})
    # What is loaded is marked: to load 150,000 tokens again takes 0.5 s.
    if marked and (library := spare_libraries.pop(tokenizer.json, None)):
        for string in marked:
            _, content, _, *flags = known[string]
            names = ("lstrip", "rstrip", "single_word", "normalized")
            token = LibraryToken(content, **dict(zip(names, flags, strict=True)), special=True)
            library.add_special_tokens([token])
        keep_spare(text, library)
    return replace(
        tokenizer,
        json=text,
        added=added,
        marked=(*tokenizer.marked, *sorted(marked)),
        max_emittable_id=max(ids | {tokenizer.max_emittable_id}),
    )
