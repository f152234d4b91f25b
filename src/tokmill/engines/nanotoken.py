"""The nanotoken engine, for WordPiece: `pip install tokmill[wordpiece]`.

Its caches stop growing at a million words, for each thread that calls it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.engines.engine import EngineRow
from tokmill.offsets import encode_in_calls
from tokmill.tokenizer.tokenizer_json import without_special_tokens
from tokmill.values import TokenBatch

if TYPE_CHECKING:
    import pyarrow as pa

    from tokmill.tokenizer.tokenizer import Tokenizer

_CALL_BYTES = 1 << 20
"""Text per library call, which takes a list of its documents."""


class Nanotoken:
    """The library behind the engine protocol; each call encodes on the thread of its caller."""

    name = "nanotoken"
    renewable = False
    concurrent = True

    def __init__(self, tokenizer: Tokenizer, *, parse: bool, n_threads: int = 1) -> None:
        from nanotoken import WordPieceTokenizer

        text = tokenizer.fast_json
        self._library = WordPieceTokenizer.from_json(
            text if parse else without_special_tokens(text)
        )

    def encode(self, text: pa.LargeStringArray) -> TokenBatch:
        """Encode documents; see `Engine`."""
        return encode_in_calls(text, _CALL_BYTES, self._call)

    def _call(self, text: pa.LargeStringArray) -> TokenBatch:
        ids, offsets = self._library.encode_batch(
            text.to_pylist(), add_special_tokens=False, parallel=False
        )
        return TokenBatch(ids, offsets)


ENGINE = EngineRow(Nanotoken, packages=("nanotoken",), distribution="nanotoken")
