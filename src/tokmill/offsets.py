"""Documents by their byte offsets: cut into pieces, and put together again as tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokmill.values import TokenBatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    import pyarrow as pa


def byte_offsets(text: pa.LargeStringArray) -> npt.NDArray[np.int64]:
    """View where n documents begin and end in the column's buffer of bytes: (n + 1,) int64."""
    offsets = np.frombuffer(text.buffers()[1], np.int64)
    return offsets[text.offset : text.offset + len(text) + 1]


def text_column(text: pa.LargeStringArray, offsets: npt.NDArray[np.int64]) -> pa.LargeStringArray:
    """View the bytes of a column as other texts, cut at `offsets` of its buffer."""
    import pyarrow as pa

    data = text.buffers()[2] or pa.py_buffer(b"")
    buffers = [None, pa.py_buffer(offsets), data]
    return pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers)


def split_by_bytes(text: pa.LargeStringArray, n_bytes: int) -> Iterator[pa.LargeStringArray]:
    """View a column as pieces of whole documents, each of `n_bytes` at most or one document."""
    offsets = byte_offsets(text)
    start = 0
    while start < len(text):
        limit = offsets[start] + n_bytes
        stop = max(start + 1, int(np.searchsorted(offsets, limit, "right")) - 1)
        yield text.slice(start, stop - start)
        start = stop


def concat_tokens(batches: Sequence[TokenBatch]) -> TokenBatch:
    """Give the tokens of several batches, at least one, as one batch."""
    if len(batches) == 1:
        return batches[0]
    lengths = np.concatenate([batch.lengths for batch in batches])
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return TokenBatch(np.concatenate([batch.ids for batch in batches]), offsets)
