"""The gigatoken engine: Arrow buffers in, one flat uint32 buffer out.

The caches of release 0.10.0 grow with every new word: to more than 1.6 GiB after 234 MB of text
that never repeats. Loading it again frees that memory, so it is renewable.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.engines.engine import EngineRow
from tokmill.offsets import byte_offsets, encode_in_calls, offsets_of
from tokmill.tokenizer.tokenizer_json import without_special_tokens
from tokmill.values import TokenBatch

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from tokmill.tokenizer.tokenizer import Tokenizer

_CALL_BYTES = 1 << 20
"""Text per library call. Up to this size the library encodes on the calling thread, with the words
that one of its workers has learnt. A larger text goes to the library's own thread pool and is
slower (355 against 590 MB/s with gpt2 on two cores): every call waits for its last thread."""

_FEW_DOCUMENTS = 500
"""Calls with at most so many documents get a list of copies. For an awkward array the library calls
ten functions of awkward, which take 0.3 ms; to copy 500 documents of 2 kB takes as long."""

_TABLE_BYTES = 64 << 20
"""Text that an engine encodes in tables before it imports awkward. The import takes 0.2 s, 40 MB;
tables take 0.3 ms for a MB of long documents, 2 ms for one of documents of 200 characters."""

_LIKE_BYTES = 64
"""Documents up to this length stand in one table, whatever their length."""

_NO_IDS = np.empty(0, np.uint32)


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
        is_bpe = isinstance(self._backend, BPETokenizer)
        self._has_workers = is_bpe and n_threads > 1
        # The SentencePiece backend forgets its words after each call: long calls are faster.
        self._call_bytes = _CALL_BYTES if is_bpe else 1 << 62
        self._table_bytes = 0  # encoded so far

    def encode(self, text: pa.LargeStringArray) -> TokenBatch:
        """Encode documents; see `Engine`."""
        return encode_in_calls(text, self._call_bytes, self._call)

    def _call(self, text: pa.LargeStringArray) -> TokenBatch:
        offsets = byte_offsets(text)
        n_bytes = int(offsets[-1] - offsets[0])
        is_small = n_bytes <= _CALL_BYTES
        if is_small and self._table_bytes < _TABLE_BYTES:
            self._table_bytes += n_bytes
            return self._encode_in_tables(_as_bytes(text))
        documents = _as_bytes(text) if is_small and len(text) <= _FEW_DOCUMENTS else _strings(text)
        layout = self._backend.encode_batch(documents, parallel=self._has_workers).layout
        return TokenBatch(np.asarray(layout.content.data), np.asarray(layout.offsets.data))

    def _encode_in_tables(self, documents: list[bytes]) -> TokenBatch:
        """Encode documents as rows of tables, the one result of the library without awkward.

        Rows of one table are of like length, so it is at most 8 times as large as its text.
        """
        from gigatoken.gigatoken_rs import BytesSource, PadTruncate

        ids_of: list[npt.NDArray[np.uint32]] = [_NO_IDS] * len(documents)
        by_length = sorted(range(len(documents)), key=lambda place: len(documents[place]))
        while by_length:
            longest = 2 * len(documents[by_length[0]]) + _LIKE_BYTES
            n_alike = bisect_right(by_length, longest, key=lambda place: len(documents[place]))
            alike, by_length = by_length[:n_alike], by_length[n_alike:]
            source = BytesSource([documents[place] for place in alike])
            rows, lengths = self._backend.encode_batch_padded(
                source, PadTruncate(0), parallel=self._has_workers
            )
            for place, row, length in zip(alike, rows, lengths.tolist(), strict=True):
                ids_of[place] = row[:length]
        all_lengths = np.fromiter(map(len, ids_of), np.int64, len(ids_of))
        return TokenBatch(np.concatenate([*ids_of, _NO_IDS]), offsets_of(all_lengths))


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
