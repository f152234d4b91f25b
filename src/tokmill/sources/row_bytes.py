"""Bytes of each row of a table after decoding, and tables split by that size.

The memory of an array does not tell the size of its text: a dictionary stores a value once for all
its rows, and several views may point to the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

_OFFSET_BYTES = 4
_VIEW_BYTES = 16
_LISTS = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_map,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)
_TEXTS = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)


def split_rows(batch: pa.RecordBatch, n_bytes: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield slices of at most `n_bytes` decoded, with the bytes of each; nothing is copied.

    A larger row is a slice of its own.
    """
    if not batch.num_rows:
        return
    if batch.nbytes <= n_bytes and all(map(_is_plain, batch.schema.types)):
        yield batch, batch.nbytes
        return
    ends = np.cumsum(row_bytes(batch))
    start = before = 0
    while start < batch.num_rows:
        stop = max(start + 1, int(np.searchsorted(ends, before + n_bytes, "right")))
        yield batch.slice(start, stop - start), int(ends[stop - 1]) - before
        start, before = stop, int(ends[stop - 1])


def row_bytes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return the decoded bytes of each row, at least 1: (n_rows,) int64."""
    return sum((_sizes(column) for column in batch.columns), np.ones(batch.num_rows, np.int64))


def dictionary_bytes(array: pa.Array) -> int:
    """Return the bytes of the dictionaries of an array: all values, also those of no row."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return dictionary_bytes(array.storage)
    if pa.types.is_dictionary(kind):
        return int(array.dictionary.nbytes)
    if pa.types.is_struct(kind):
        return sum(dictionary_bytes(array.field(i)) for i in range(kind.num_fields))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return dictionary_bytes(array.values)
    return 0


def _is_plain(kind: pa.DataType) -> bool:
    """Return whether arrays of a type take no more memory after decoding."""
    if pa.types.is_struct(kind):
        return all(_is_plain(kind.field(i).type) for i in range(kind.num_fields))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _is_plain(kind.value_type)
    return (
        pa.types.is_primitive(kind) or pa.types.is_null(kind) or any(is_a(kind) for is_a in _TEXTS)
    )


def _sizes(array: pa.Array) -> npt.NDArray[np.int64]:
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return _sizes(array.storage)
    if pa.types.is_dictionary(kind):
        return _dictionary_sizes(array)
    if pa.types.is_run_end_encoded(kind):
        return _run_sizes(array)
    if any(is_a(kind) for is_a in _TEXTS):
        lengths = pc.fill_null(pc.binary_length(array), 0)
        return _as_numpy(lengths) + _OFFSET_BYTES
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return _view_lengths(array) + _VIEW_BYTES
    if pa.types.is_struct(kind):
        return sum(map(_sizes, array.flatten()), np.zeros(len(array), np.int64))
    if any(is_a(kind) for is_a in _LISTS):
        return _list_sizes(array)
    # Types of fixed width, and types that no text is read from.
    return np.full(len(array), -(-array.nbytes // max(1, len(array))), np.int64)


def _dictionary_sizes(array: pa.DictionaryArray) -> npt.NDArray[np.int64]:
    indices = _as_numpy(pc.fill_null(array.indices.cast(pa.int64()), -1))
    # Measure only the values of these rows: a few rows may come with a large dictionary.
    used, places = np.unique(indices, return_inverse=True)
    values = array.dictionary.take(pa.array(used, mask=used < 0))
    sizes: npt.NDArray[np.int64] = _sizes(values)[places]
    return sizes


def _run_sizes(array: pa.RunEndEncodedArray) -> npt.NDArray[np.int64]:
    rows = np.arange(array.offset, array.offset + len(array))
    runs = np.searchsorted(array.run_ends.to_numpy(), rows, "right")
    sizes: npt.NDArray[np.int64] = _sizes(array.values)[runs]
    return sizes


def _list_sizes(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return the bytes of all values of each list; flatten() leaves out values under nulls."""
    if pa.types.is_map(array.type):  # has no lengths of its own
        array = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
    lengths = _as_numpy(pc.fill_null(pc.list_value_length(array), 0))
    values = np.zeros(int(lengths.sum()) + 1, np.int64)
    np.cumsum(_sizes(array.flatten()), out=values[1:])
    stops = np.cumsum(lengths)
    sizes: npt.NDArray[np.int64] = values[stops] - values[stops - lengths] + _OFFSET_BYTES
    return sizes


def _view_lengths(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return the lengths stored in views, 0 for a null; Arrow has no function for them."""
    data = array.buffers()[1]
    words = np.frombuffer(data, np.int32, 4 * (array.offset + len(array))) if data else np.array([])
    lengths = words.reshape(-1, 4)[array.offset :, 0].astype(np.int64)
    lengths[array.is_null().to_numpy(zero_copy_only=False)] = 0
    return lengths


def _as_numpy(numbers: pa.Array) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = numbers.to_numpy(zero_copy_only=False).astype(np.int64)
    return found
