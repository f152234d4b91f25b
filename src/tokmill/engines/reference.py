"""The reference: the `tokenizers` library, and SentencePiece's own for a `.model`."""

from __future__ import annotations

import itertools
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.engines.engine import REFERENCE, EngineRow
from tokmill.errors import TokenizerError, UsageError
from tokmill.offsets import encode_in_calls, offsets_of
from tokmill.values import TokenBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from tokmill.tokenizer.tokenizer import Tokenizer

_CALL_BYTES = 1 << 20
"""Text per library call: an `Encoding` of the library takes about 100 bytes per token."""


class Reference:
    """The reference engine; `encode_texts`: of its library; `ids`: returns those of a result."""

    name = REFERENCE
    renewable = False
    concurrent = False

    def __init__(
        self, encode_texts: Callable[[list[str]], Sequence[Any]], ids: Callable[[Any], list[int]]
    ) -> None:
        self._encode_texts, self._ids = encode_texts, ids

    def encode(self, text: pa.LargeStringArray) -> TokenBatch:
        """Encode documents; see `Engine`."""
        return encode_in_calls(text, _CALL_BYTES, self._call)

    def _call(self, text: pa.LargeStringArray) -> TokenBatch:
        documents = list(map(self._ids, self._encode_texts(text.to_pylist())))
        ids = np.fromiter(itertools.chain.from_iterable(documents), np.uint32)
        return TokenBatch(ids, offsets_of(np.fromiter(map(len, documents), np.int64)))


def load_reference(tokenizer: Tokenizer, *, parse: bool, n_threads: int = 1) -> Reference:
    """Load the library that a tokenizer is for.

    With `tokenizers`, strings of special added tokens are text unless `parse`; SentencePiece never
    turns text into a control token.
    """
    if tokenizer.kind != "sentencepiece":
        library = tokenizer.library()
        library.encode_special_tokens = not parse
        encode = partial(library.encode_batch_fast, add_special_tokens=False)
        return Reference(encode, attrgetter("ids"))

    from sentencepiece import SentencePieceProcessor

    if parse:
        raise UsageError(
            f"{tokenizer.name}: SentencePiece never parses control tokens in text: "
            "leave control_tokens_in_text at 'text'"
        )
    try:
        model = SentencePieceProcessor(model_proto=tokenizer.data)
    except RuntimeError as error:
        raise TokenizerError(f"{tokenizer.name}: not a SentencePiece model: {error}") from None
    return Reference(partial(model.encode, out_type=int, num_threads=n_threads), list)


ENGINE = EngineRow(
    load_reference, packages=("tokenizers",), distribution="tokenizers", takes_models=True
)
