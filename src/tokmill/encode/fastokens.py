"""The fastokens engine. Its caches stop growing by themselves, near 350 MiB."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from fastokens import Tokenizer as Library

from tokmill.batch import TokenBatch

if TYPE_CHECKING:
    import pyarrow as pa

    from tokmill.encode.tokenizer import Tokenizer


class Fastokens:
    """fastokens behind the engine protocol."""

    name = "fastokens"
    renewable = False
    concurrent = False

    def __init__(self, tokenizer: Tokenizer, *, parse: bool) -> None:
        self._library = Library.from_json_str(tokenizer.fast_json)
        self._parse = parse

    def encode(self, text: pa.LargeStringArray) -> TokenBatch:
        """Encode documents; see `Engine`."""
        ids, offsets = self._library.encode_batch_flat(
            text.to_pylist(), split_special_tokens=not self._parse
        )
        return TokenBatch(
            np.frombuffer(ids, np.uint32), np.frombuffer(offsets, np.uint64).astype(np.int64)
        )
