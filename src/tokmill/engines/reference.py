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
from tokmill.tokenizer.sentencepiece_model import load_processor
from tokmill.tokenizer.tokenizer_json import refusal
from tokmill.values import TokenBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from tokmill.tokenizer.tokenizer import Tokenizer

_CALL_BYTES = 1 << 20
"""Text per library call: an `Encoding` of the library takes about 100 bytes per token."""


class Reference:
    """The reference engine; `encode_texts`: of its library; `ids`: returns those of a result.

    `where`: the tokenizer, for errors.
    """

    name = REFERENCE
    renewable = False
    concurrent = False

    def __init__(
        self,
        encode_texts: Callable[[list[str]], Sequence[Any]],
        ids: Callable[[Any], list[int]],
        where: str,
    ) -> None:
        self._encode_texts, self._ids, self._where = encode_texts, ids, where

    def encode(self, text: pa.LargeStringArray) -> TokenBatch:
        """Encode documents; see `Engine`.

        Raises:
            TokenizerError: the library fails on one: `tokenizers` panics where an added token with
                `rstrip` stands before one with `lstrip` that is white space.
        """
        return encode_in_calls(text, _CALL_BYTES, self._call)

    def _call(self, text: pa.LargeStringArray) -> TokenBatch:
        texts = text.to_pylist()
        try:
            encoded = self._encode_texts(texts)
        except MemoryError:
            raise
        except BaseException as error:
            refusal(error)
            encoded = [one for document in texts for one in self._encode_alone(document)]
        documents = list(map(self._ids, encoded))
        ids = np.fromiter(itertools.chain.from_iterable(documents), np.uint32)
        return TokenBatch(ids, offsets_of(np.fromiter(map(len, documents), np.int64)))

    def _encode_alone(self, text: str) -> Sequence[Any]:
        try:
            return self._encode_texts([text])
        except MemoryError:
            raise
        except BaseException as error:
            raise TokenizerError(
                f"{self._where}: the library that encodes it fails on the text that begins "
                f"{text[:60]!r} ({refusal(error)}): leave that record out, or change the tokenizer"
            ) from None


def load_reference(tokenizer: Tokenizer, *, parse: bool, n_threads: int = 1) -> Reference:
    """Load the library that a tokenizer is for.

    With `tokenizers`, strings of special added tokens are text unless `parse`; SentencePiece never
    turns text into a control token.
    """
    if tokenizer.kind != "sentencepiece":
        library = tokenizer.library()
        library.encode_special_tokens = not parse
        encode = partial(library.encode_batch_fast, add_special_tokens=False)
        return Reference(encode, attrgetter("ids"), tokenizer.name)

    if parse:
        raise UsageError(
            f"{tokenizer.name}: SentencePiece never parses control tokens in text: "
            "leave control_tokens_in_text at 'text'"
        )
    model = load_processor(tokenizer.data, where=tokenizer.name)
    return Reference(
        partial(model.encode, out_type=int, num_threads=n_threads), list, tokenizer.name
    )


ENGINE = EngineRow(
    load_reference, packages=("tokenizers",), distribution="tokenizers", takes_models=True
)
