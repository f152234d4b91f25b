"""Flat arrays with offsets: texts in an Arrow column, and tokens of documents end to end.

Entry i of n is `values[offsets[i]:offsets[i + 1]]`; offsets are (n + 1,) int64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.values import TokenBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt
    import pyarrow as pa


def offsets_of(lengths: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
    """Return the offsets of entries of these lengths."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def indices_of(
    starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return all indices of n ranges, end to end."""
    offsets = offsets_of(lengths)
    shifts = np.repeat(starts - offsets[:-1], lengths)
    indices: npt.NDArray[np.int64] = np.arange(offsets[-1]) + shifts
    return indices


def before_first(
    indices: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return how many values of each entry stand before the first of `indices`; all if none is.

    `indices`: into the flat array, increasing. Shape (n,).
    """
    following = np.append(indices, offsets[-1])[np.searchsorted(indices, offsets[:-1])]
    before: npt.NDArray[np.int64] = np.minimum(following, offsets[1:]) - offsets[:-1]
    return before


def starts_run(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return where a value differs from the one before it; the first always does."""
    starts = np.ones(len(values), bool)
    starts[1:] = values[1:] != values[:-1]
    return starts


def byte_offsets(text: pa.LargeStringArray) -> npt.NDArray[np.int64]:
    """Return a view of the byte offsets of n texts in the column's buffer: (n + 1,) int64."""
    offsets = np.frombuffer(text.buffers()[1], np.int64)
    return offsets[text.offset : text.offset + len(text) + 1]


def text_column(text: pa.LargeStringArray, offsets: npt.NDArray[np.int64]) -> pa.LargeStringArray:
    """Return the bytes of a column as other texts, cut at `offsets` of its buffer; no copy."""
    import pyarrow as pa

    data = text.buffers()[2] or pa.py_buffer(b"")
    buffers = [None, pa.py_buffer(offsets), data]
    return pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers)


def split_by_bytes(text: pa.LargeStringArray, n_bytes: int) -> Iterator[pa.LargeStringArray]:
    """Yield slices of a column: as many documents as `n_bytes` hold, at least one; no copy."""
    offsets = byte_offsets(text)
    start = 0
    while start < len(text):
        limit = offsets[start] + n_bytes
        stop = max(start + 1, int(np.searchsorted(offsets, limit, "right")) - 1)
        yield text.slice(start, stop - start)
        start = stop


def encode_in_calls(
    text: pa.LargeStringArray, n_bytes: int, call: Callable[[pa.LargeStringArray], TokenBatch]
) -> TokenBatch:
    """Return the tokens of texts, encoded by calls with as many as `n_bytes` hold."""
    batches = [call(piece) for piece in split_by_bytes(text, n_bytes)]
    if not batches:
        return TokenBatch(np.zeros(0, np.uint32), np.zeros(1, np.int64))
    if len(batches) == 1:
        return batches[0]
    lengths = np.concatenate([batch.lengths for batch in batches])
    return TokenBatch(np.concatenate([batch.ids for batch in batches]), offsets_of(lengths))


def merge_tokens(first: TokenBatch, rest: TokenBatch, is_rest: npt.NDArray[np.bool_]) -> TokenBatch:
    """Return two batches as one; document i is the next one of `rest` if `is_rest[i]`."""
    lengths = np.empty(len(is_rest), np.int64)
    lengths[~is_rest], lengths[is_rest] = first.lengths, rest.lengths
    offsets, of_rest = offsets_of(lengths), np.repeat(is_rest, lengths)
    ids = np.empty(int(offsets[-1]), np.uint32)
    ids[~of_rest], ids[of_rest] = first.ids, rest.ids
    routed = [
        np.flatnonzero(of_batch)[batch.routed]
        for batch, of_batch in ((first, ~is_rest), (rest, is_rest))
        if batch.routed is not None
    ]
    return TokenBatch(ids, offsets, np.sort(np.concatenate(routed)) if routed else None)


def select_documents(batch: TokenBatch, keep: npt.NDArray[np.bool_]) -> TokenBatch:
    """Return the documents whose `keep` (n_documents,) is true, in order."""
    lengths = batch.lengths
    routed = batch.routed
    if routed is not None:
        routed = (np.cumsum(keep) - 1)[routed[keep[routed]]]
    return TokenBatch(batch.ids[np.repeat(keep, lengths)], offsets_of(lengths[keep]), routed)
