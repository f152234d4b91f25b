"""The reference: the `tokenizers` library, and SentencePiece's own for a `.model`."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from tokmill.engines.engine import REFERENCE, Engine, EngineRow
from tokmill.errors import TokenizerError, UsageError
from tokmill.offsets import split_by_bytes
from tokmill.values import TokenBatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from tokmill.tokenizer.tokenizer import Tokenizer

_CALL_BYTES = 1 << 20
"""Text per library call: an `Encoding` of the library takes about 100 bytes per token."""


class TokenizersReference:
    """The `tokenizers` library; strings of special added tokens are text unless `parse`."""

    name = REFERENCE
    renewable = False
    concurrent = False

    def __init__(self, tokenizer: Tokenizer, *, parse: bool) -> None:
        self._library = tokenizer.library()
        self._library.encode_special_tokens = not parse

    def encode(self, text: pa.LargeStringArray) -> TokenBatch:
        """Encode documents; see `Engine`."""
        return _gathered(
            [
                encoding.ids
                for encoding in self._library.encode_batch_fast(call, add_special_tokens=False)
            ]
            for call in _calls(text)
        )


class SentencePieceReference:
    """SentencePiece itself; it never turns text into a control token."""

    name = REFERENCE
    renewable = False
    concurrent = False

    def __init__(self, tokenizer: Tokenizer, *, parse: bool, n_threads: int) -> None:
        from sentencepiece import SentencePieceProcessor

        if parse:
            raise UsageError(
                f"{tokenizer.name}: SentencePiece never parses control tokens in text: "
                "leave control_tokens_in_text at 'text'"
            )
        self._n_threads = n_threads
        try:
            self._library = SentencePieceProcessor(model_proto=tokenizer.data)
        except RuntimeError as error:
            raise TokenizerError(f"{tokenizer.name}: not a SentencePiece model: {error}") from None

    def encode(self, text: pa.LargeStringArray) -> TokenBatch:
        """Encode documents; see `Engine`."""
        return _gathered(
            self._library.encode(call, out_type=int, num_threads=self._n_threads)
            for call in _calls(text)
        )


def _load(tokenizer: Tokenizer, *, parse: bool, n_threads: int) -> Engine:
    if tokenizer.kind == "sentencepiece":
        return SentencePieceReference(tokenizer, parse=parse, n_threads=n_threads)
    return TokenizersReference(tokenizer, parse=parse)


ENGINE = EngineRow(_load, packages=("tokenizers",), distribution="tokenizers", takes_models=True)


def _calls(text: pa.LargeStringArray) -> Iterator[list[str]]:
    return (piece.to_pylist() for piece in split_by_bytes(text, _CALL_BYTES))


def _gathered(calls: Iterable[Sequence[Sequence[int]]]) -> TokenBatch:
    """Return the ids of all calls as one flat batch."""
    ids: list[np.ndarray[tuple[int], np.dtype[np.uint32]]] = []
    lengths: list[int] = []
    for documents in calls:
        lengths += [len(document) for document in documents]
        ids.append(np.fromiter(itertools.chain.from_iterable(documents), np.uint32))
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return TokenBatch(np.concatenate(ids) if ids else np.zeros(0, np.uint32), offsets)
