"""The gigatoken engine: Arrow buffers in, one flat uint32 buffer out.

The caches of release 0.10.0 grow with every new word: to more than 1.6 GiB after 234 MB of text
that never repeats. Loading it again frees that memory, so it is renewable.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.engines.engine import EngineRow
from tokmill.offsets import byte_offsets, encode_in_calls
from tokmill.tokenizer.tokenizer_json import without_special_tokens
from tokmill.values import TokenBatch

if TYPE_CHECKING:
    import pyarrow as pa

    from tokmill.tokenizer.tokenizer import Tokenizer

_CALL_BYTES = 1 << 20
"""Text per library call. Up to this size the library encodes on the calling thread, with the words
that one of its workers has learnt. A larger text goes to the library's own thread pool and is
slower (355 against 590 MB/s with gpt2 on two cores): every call waits for its last thread."""

_FEW_DOCUMENTS = 500
"""Calls with at most so many documents get a list of copies. For an awkward array the library calls
ten functions of awkward, which take 0.3 ms; to copy 500 documents of 2 kB takes as long."""


class Gigatoken:
    """The BPE and SentencePiece-BPE backends of gigatoken behind the engine protocol."""

    name = "gigatoken"
    renewable = True
    concurrent = True

    def __init__(self, tokenizer: Tokenizer, *, parse: bool, n_threads: int) -> None:
        from gigatoken.gigatoken_rs import BPETokenizer, load_hf_json

        text = tokenizer.fast_json
        source = text if parse else without_special_tokens(text)
        self._backend = load_hf_json(source)
        # The SentencePiece backend forgets its words after each call: long calls are faster.
        self._has_workers = n_threads > 1 and isinstance(self._backend, BPETokenizer)

    def encode(self, text: pa.LargeStringArray) -> TokenBatch:
        """Encode documents; see `Engine`."""
        return encode_in_calls(text, _CALL_BYTES if self._has_workers else 1 << 62, self._call)

    def _call(self, text: pa.LargeStringArray) -> TokenBatch:
        offsets = byte_offsets(text)
        is_list = len(text) <= _FEW_DOCUMENTS and offsets[-1] - offsets[0] <= _CALL_BYTES
        documents = _as_bytes(text) if is_list else _strings(text)
        layout = self._backend.encode_batch(documents, parallel=self._has_workers).layout
        return TokenBatch(np.asarray(layout.content.data), np.asarray(layout.offsets.data))


def _as_bytes(text: pa.LargeStringArray) -> list[bytes]:
    """Return a copy of each document."""
    data = memoryview(text.buffers()[2] or b"")
    return [bytes(data[start:stop]) for start, stop in pairwise(byte_offsets(text).tolist())]


def _strings(text: pa.LargeStringArray) -> Any:
    """Return a view of an Arrow column as the awkward array of strings that gigatoken takes."""
    import awkward as ak

    data = text.buffers()[2]
    characters = ak.contents.NumpyArray(
        np.frombuffer(data if data is not None else b"", np.uint8), parameters={"__array__": "char"}
    )
    layout = ak.contents.ListOffsetArray(
        ak.index.Index64(byte_offsets(text)), characters, parameters={"__array__": "string"}
    )
    return ak.Array(layout)


ENGINE = EngineRow(Gigatoken, packages=("gigatoken", "awkward"), distribution="gigatoken")
