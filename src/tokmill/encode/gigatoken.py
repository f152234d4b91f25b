"""The gigatoken engine: Arrow buffers in, one flat uint32 buffer out, no copy of the text.

Its caches grow with every new word: past 1.6 GiB after 234 MB of ever-new text. Loading it anew
gives the memory back, so it is renewable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
from gigatoken.gigatoken_rs import load_hf_json

from tokmill.batch import TokenBatch
from tokmill.encode.engine import without_special_tokens
from tokmill.encode.offsets import byte_offsets

if TYPE_CHECKING:
    import pyarrow as pa

    from tokmill.encode.tokenizer import Tokenizer


class Gigatoken:
    """gigatoken's BPE and SentencePiece-BPE backends behind the engine protocol."""

    name = "gigatoken"
    renewable = True

    def __init__(self, tokenizer: Tokenizer, *, parse: bool, parallel: bool) -> None:
        source = tokenizer.json if parse else without_special_tokens(tokenizer.json)
        self._backend = load_hf_json(source)
        self._parallel = parallel

    def encode(self, text: pa.LargeStringArray) -> TokenBatch:
        """Encode documents; see `Engine`."""
        if not len(text):
            return TokenBatch(np.zeros(0, np.uint32), np.zeros(1, np.int64))
        layout = self._backend.encode_batch(_strings(text), parallel=self._parallel).layout
        return TokenBatch(np.asarray(layout.content.data), np.asarray(layout.offsets.data))


def _strings(text: pa.LargeStringArray) -> Any:
    """View an Arrow column as the awkward array of strings that gigatoken takes."""
    data = text.buffers()[2]
    characters = ak.contents.NumpyArray(
        np.frombuffer(data if data is not None else b"", np.uint8), parameters={"__array__": "char"}
    )
    layout = ak.contents.ListOffsetArray(
        ak.index.Index64(byte_offsets(text)), characters, parameters={"__array__": "string"}
    )
    return ak.Array(layout)
