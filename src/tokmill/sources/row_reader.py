"""Read formats that Arrow reads as rows (Parquet, Arrow, a Hub dataset) as blocks of rows.

Blocks are limited by the bytes of their rows after decoding. The memory of an array does not tell
the size of its text: a dictionary stores a value once for all its rows, and several views may point
to the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokmill.errors import StorageError
from tokmill.offsets import offsets_of
from tokmill.sources.blocks import (
    RowLookup,
    next_block_bytes,
    row_as_json,
    too_large_message,
)
from tokmill.sources.columns import BadRow, fit_columns
from tokmill.sources.record_json import HEAD_ROWS, row_samples, wants_record_json
from tokmill.sources.streams import check_ratio
from tokmill.values import RecordPlace, Records, Reject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy.typing as npt

    from tokmill.sources.blocks import Block
    from tokmill.sources.formats import Reading
    from tokmill.sources.record_json import Samples


MOST_FITTED_BYTES = 1 << 30
"""Larger rows are rejected before they are copied: a copy would need offsets of over 32 bits."""

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


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Rows of a table in several batches; `first` is the 0-based number of row 0 in the slice.

    `n_bytes`: memory of the rows once decoded.
    """

    batches: Sequence[pa.RecordBatch]
    source: RowReader
    first: int
    input_bytes: int
    n_bytes: int

    def parse(self) -> Records:
        """Return the records of the block.

        Raises:
            UsageError: a column has a type that does not fit.
        """
        reading, batch = self.source.reading, _joined(self.batches)
        limit = reading.settings.max_record_bytes
        is_refused = self.n_bytes > MOST_FITTED_BYTES and batch.num_rows == 1
        fitted = fit_columns(
            batch.slice(0, 0) if is_refused else batch,
            reading.schema,
            limit,
            self.source.where,
        )
        bad = fitted.bad
        if is_refused:
            bad = [BadRow(0, "record too large", too_large_message(self.n_bytes, limit))]
        rejects = [
            Reject(RecordPlace(self.first + row + 1, -1), reason, message, row_as_json(batch, row))
            for row, reason, message in bad
        ]
        lookup = RowLookup(batch, fitted.rows, self.first, self.source.names)
        return Records(fitted.batch, lookup, rejects, samples=self._samples(batch, fitted.rows))

    def _samples(self, batch: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> Samples:
        """Return the first rows of the slice with the columns that are left out, too.

        These are read here, as the reader must not wait for them.
        """
        reading = self.source.reading
        is_head = reading.samples_head and not self.first
        if not is_head or wants_record_json(reading.schema):
            return []
        samples = row_samples(batch)
        head = self.source.head()
        if head is not None:
            others = dict(row_samples(head))
            samples = [(row, record | others[row]) for row, record in samples if row in others]
        places = {row: i for i, row in enumerate(rows[:HEAD_ROWS].tolist())}
        return [(places[row], record) for row, record in samples if row in places]


@dataclass(slots=True)
class RowReader:
    """Reads the rows of a slice as blocks of at most `batch_bytes`, decoded.

    Larger batches are split and smaller ones joined. A larger row is a block of its own. For
    smaller blocks at both ends see `next_block_bytes`.

    `batches()` returns the batches of the slice, of any size. `n_rows`: rows of the slice, 0 if
    unknown. `n_bytes`: its stored bytes. `rows_before` counts the rows of the file before the
    slice. `head` reads the first rows of its other columns; None if it has none.
    """

    reading: Reading
    where: str
    names: Sequence[str]
    batches: Callable[[], Iterable[pa.RecordBatch]]
    head: Callable[[], pa.RecordBatch | None]
    n_rows: int = 0
    n_bytes: int = 0
    rows_before: Callable[[], int] = lambda: 0
    close: Callable[[], None] = lambda: None
    _first: int = field(default=0, init=False)
    """The rows that blocks were made of."""

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks in order; to be called once.

        Raises:
            StorageError: the rows are too much for the size of their file.
        """
        held: list[pa.RecordBatch] = []
        n_held = n_unpacked = 0
        limit = next_block_bytes(0, self.reading.batch_bytes)
        # A Hub dataset has no stored bytes to compare with.
        max_ratio = self.reading.settings.max_decompression_ratio if self.n_bytes else 0
        for batch in self.batches():
            for part, n_bytes in split_rows(batch, limit):
                n_unpacked += n_bytes
                check_ratio(self.where, self.n_bytes, n_unpacked, max_ratio)
                if held and n_held + n_bytes > limit:
                    yield self._block(held, n_held)
                    left_bytes = None
                    if self.n_rows:  # if the bytes of these rows go on
                        n_held_rows = sum(batch.num_rows for batch in held)
                        left_bytes = n_held * (self.n_rows - self._first) // n_held_rows
                    limit = next_block_bytes(limit, self.reading.batch_bytes, left_bytes)
                    held, n_held = [], 0
                held.append(part)
                n_held += n_bytes
        if held:
            yield self._block(held, n_held)

    def _block(self, batches: Sequence[pa.RecordBatch], n_bytes: int) -> RowBlock:
        first = self._first
        self._first += sum(batch.num_rows for batch in batches)
        input_bytes = n_bytes  # of a Hub dataset, which has no file
        if self.n_rows:
            before, stop = (self.n_bytes * n // self.n_rows for n in (first, self._first))
            input_bytes = stop - before
        return RowBlock(batches, self, first, input_bytes, n_bytes)

    def origin(self) -> RecordPlace:
        """Return the rows before the slice; rows have no byte offset."""
        return RecordPlace(self.rows_before(), -1)

    def length(self) -> tuple[int, int]:
        """Return the rows of the slice, once all blocks were yielded, and 0."""
        return self._first, 0


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of several batches as one, with dictionaries decoded.

    Joining dictionaries would copy all their values, even for a few rows.
    """
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches([_decoded(batch) for batch in batches])


def _decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    if not any(map(pa.types.is_dictionary, batch.schema.types)):
        return batch
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


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
    """Return the decoded bytes of each value of an array."""
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
    values = offsets_of(_sizes(array.flatten()))
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
    values: npt.NDArray[np.int64] = numbers.to_numpy(zero_copy_only=False).astype(np.int64)
    return values


def refuse_repeated(path: str, names: Sequence[str], wanted: Sequence[str]) -> None:
    """Refuse a file with several columns of a name that is read: Arrow would give none of them.

    Raises:
        StorageError: it has some.
    """
    repeated = next((name for name in wanted if names.count(name) > 1), None)
    if repeated is not None:
        raise StorageError(
            f"{path}: has {names.count(repeated)} columns named {repeated!r}, expected one: rename "
            "or remove the others"
        )
