"""Checks that a text encoded in two parts has the tokens of the text in one piece."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from tokmill.errors import TokenizerError

if TYPE_CHECKING:
    from tokmill.engines.engine import Engine
    from tokmill.tokenizer.tokenizer import Tokenizer

_LEFT = (
    *("user: hi\n", "Answer:", "### Response:\n", "Human: what?\n\nAssistant:", "assistant\n"),
    *("中文：", "答案：", "[/INST]", "Question: 2 + 2 = ", "<|assistant|>\n", "Well, ", "👍"),
)
_RIGHT = (
    *("Hello, world!", " yes", "  two spaces", "\nnew line", "你好，世界。", "42", "👍 ok", " 猫"),
    *("\n\n", " ", "\t", "(", "é", "...", "The quick brown fox"),
)

_NOT_PROVEN = "text that continues other text cannot be encoded separately"
_ADVICE = "choose boundary joint"


def check_continuation(
    tokenizer: Tokenizer, first: Engine, continuation: Engine, *, parse: bool = False
) -> int:
    """Encode built-in texts in two parts and in one, and return the number of pairs that agree.

    Only pairs (a, b) count in which a token of a + b ends between a and b, by the offsets of the
    reference. With `parse`, control token strings in a text become control tokens, and b after one
    is not a continuation. `tokenizer`: that of `first`.

    Raises:
        TokenizerError: a pair has other tokens than its text, or no pair counts.
    """
    import pyarrow as pa

    pairs = _pairs_with_boundary(tokenizer, parse=parse)
    if not pairs:
        raise TokenizerError(
            f"{tokenizer.name}: {_NOT_PROVEN}: no built-in text has a boundary there; {_ADVICE}"
        )
    columns = [pa.array(column, pa.large_string()) for column in zip(*pairs, strict=True)]
    left, right = first.encode(columns[0]), continuation.encode(columns[1])
    joint = first.encode(pa.array([a + b for a, b in pairs], pa.large_string()))
    for i, (a, b) in enumerate(pairs):
        parts = [
            batch.ids[batch.offsets[i] : batch.offsets[i + 1]].tolist()
            for batch in (left, right, joint)
        ]
        if parts[0] + parts[1] != parts[2]:
            raise TokenizerError(
                f"{tokenizer.name}: {_NOT_PROVEN}: {a!r} and {b!r} become {parts[0]} and "
                f"{parts[1]}, in one piece {parts[2]}; {_ADVICE}"
            )
    return len(pairs)


def _pairs_with_boundary(tokenizer: Tokenizer, *, parse: bool) -> list[tuple[str, str]]:
    """Return the pairs (a, b) in which a token of a + b ends between a and b."""
    parsed = tuple(token.content for token in tokenizer.added) if parse else ()
    left = [text for text in _LEFT if not text.rstrip().endswith(parsed)]
    pairs = list(product(left, _RIGHT))
    library = tokenizer.library()
    library.encode_special_tokens = not parse
    encodings = library.encode_batch([a + b for a, b in pairs], add_special_tokens=False)
    return [
        (a, b)
        for (a, b), encoding in zip(pairs, encodings, strict=True)
        if all(stop <= len(a) or start >= len(a) for start, stop in encoding.offsets)
    ]
