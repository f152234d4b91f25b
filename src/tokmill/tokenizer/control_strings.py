"""Control tokens whose strings stand inside a text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from tokmill.tokenizer.control_variant import added_tokens_part
from tokmill.tokenizer.sentencepiece_model import control_pieces, read_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from tokmill.tokenizer.tokenizer import Tokenizer


def control_strings(tokenizer: Tokenizer) -> list[str]:
    """Return the strings of a tokenizer's special added tokens, in the order of their ids."""
    if tokenizer.kind == "sentencepiece":
        return [
            content
            for _, content in control_pieces(read_model(tokenizer.data, where=tokenizer.name))
        ]
    added, _, _ = added_tokens_part(tokenizer.json)
    ordered = sorted(added, key=lambda token: int(token["id"]))
    return [str(token["content"]) for token in ordered if token.get("special")]


def contains_control(text: pa.LargeStringArray, strings: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Say for each of n documents whether any of `strings` stands in it: (n,) bool."""
    import pyarrow.compute as pc

    wanted = [string for string in strings if string]
    if not wanted:
        return np.zeros(len(text), np.bool_)
    found = pc.match_substring_regex(text, "|".join(map(re.escape, wanted)))
    result: npt.NDArray[np.bool_] = found.to_numpy(zero_copy_only=False)
    return result
