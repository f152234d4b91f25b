"""Read formats that Arrow reads as rows (Parquet, Arrow, a Hub dataset) as blocks of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from tokmill.errors import StorageError
from tokmill.sources.blocks import (
    RowLookup,
    next_block_bytes,
    row_as_json,
    too_large_message,
)
from tokmill.sources.columns import fit_columns
from tokmill.sources.formats import Format, Reading
from tokmill.sources.ratio_limit import check_ratio
from tokmill.sources.record_json import HEAD_ROWS, row_samples, wants_record_json
from tokmill.sources.row_bytes import split_rows
from tokmill.values import Place, Records, Reject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

    from tokmill.sources.blocks import Block
    from tokmill.sources.record_json import Samples
    from tokmill.sources.slices import Slice, SourceFile


MOST_FITTED_BYTES = 1 << 30
"""Larger rows are rejected before they are copied: a copy would need offsets of over 32 bits."""


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Rows of a table in several batches; `first` is the 0-based number of row 0 in the slice.

    `n_bytes`: memory of the rows once decoded. `head`: reads the first rows with the columns
    that are left out, to see which they are; called by `parse`, as the reader must not wait for it.
    """

    batches: Sequence[pa.RecordBatch]
    schema: pa.Schema
    first: int
    names: Sequence[str]
    max_record_bytes: int
    input_bytes: int
    where: str
    n_bytes: int
    head: Callable[[], pa.RecordBatch | None] | None = None

    def parse(self) -> Records:
        """Return the records of the block.

        Raises:
            UsageError: a column has a type that does not fit.
        """
        batch = _joined(self.batches)
        if self.n_bytes > MOST_FITTED_BYTES and batch.num_rows == 1:
            return self._refused(batch)
        fitted = fit_columns(batch, self.schema, self.max_record_bytes, self.where)
        rejects = [
            Reject(
                Place(self.first + bad.row + 1, -1),
                bad.reason,
                bad.message,
                row_as_json(batch, bad.row),
            )
            for bad in fitted.bad
        ]
        lookup = RowLookup(batch, fitted.rows, self.first, self.names)
        return Records(fitted.batch, lookup, rejects, samples=self._samples(batch, fitted.rows))

    def _samples(self, batch: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> Samples:
        """Return the rows that `head` has too, with their records."""
        if self.head is None or wants_record_json(self.schema):
            return []
        head = _with_columns(batch.slice(0, HEAD_ROWS), self.head())
        fitted = {row: i for i, row in enumerate(rows[: head.num_rows].tolist())}
        return [(fitted[row], record) for row, record in row_samples(head) if row in fitted]

    def _refused(self, batch: pa.RecordBatch) -> Records:
        """Return the only row as a reject: it is too large to be converted."""
        message = too_large_message(self.n_bytes, self.max_record_bytes)
        place = Place(self.first + 1, -1)
        reject = Reject(place, "record too large", message, row_as_json(batch, 0))
        nothing = fit_columns(batch.slice(0, 0), self.schema, self.max_record_bytes, self.where)
        lookup = RowLookup(batch, nothing.rows, self.first, self.names)
        return Records(nothing.batch, lookup, [reject])


@dataclass(frozen=True, slots=True)
class RowFile:
    """An open slice of a file of rows.

    `batches()` returns the batches of the slice, of any size. `n_rows`: rows of the slice, 0 if
    unknown. `n_bytes`: its stored bytes. `rows_before` counts the rows of the file
    before the slice. `head` reads the first rows of its other columns; None if it has none.
    """

    batches: Callable[[], Iterable[pa.RecordBatch]]
    names: Sequence[str]
    n_rows: int
    n_bytes: int
    rows_before: Callable[[], int]
    close: Callable[[], None]
    where: str
    head: Callable[[], pa.RecordBatch | None]


class RowReader:
    """Reads the rows of a slice as blocks of at most `batch_bytes`, decoded.

    Larger batches are split and smaller ones joined. A larger row is a block of its own. For
    smaller blocks at both ends see `next_block_bytes`.
    """

    def __init__(self, source: RowFile, reading: Reading) -> None:
        self._samples_head = reading.samples_head
        self._source = source
        self._schema = reading.schema
        self._batch_bytes = reading.batch_bytes
        self._max_record_bytes = reading.settings.max_record_bytes
        self._max_ratio = reading.settings.max_decompression_ratio if source.n_bytes else 0
        self._unpacked = 0
        self._first = 0

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks in order; to be called once.

        Raises:
            StorageError: the rows are too much for the size of their file.
        """
        held: list[pa.RecordBatch] = []
        n_held, limit = 0, next_block_bytes(0, self._batch_bytes)
        for batch in self._source.batches():
            for part, n_bytes in split_rows(batch, limit):
                self._unpacked += n_bytes
                where, stored_bytes = self._source.where, self._source.n_bytes
                check_ratio(where, stored_bytes, self._unpacked, self._max_ratio)
                if held and n_held + n_bytes > limit:
                    yield self._block(held, n_held)
                    left_bytes = self._left_bytes(n_held, sum(one.num_rows for one in held))
                    limit = next_block_bytes(limit, self._batch_bytes, left_bytes)
                    held, n_held = [], 0
                held.append(part)
                n_held += n_bytes
        if held:
            yield self._block(held, n_held)

    def _block(self, batches: Sequence[pa.RecordBatch], n_bytes: int) -> RowBlock:
        source, first = self._source, self._first
        self._first += sum(batch.num_rows for batch in batches)
        input_bytes = n_bytes  # of a Hub dataset, which has no file
        if source.n_rows:
            before, stop = (source.n_bytes * n // source.n_rows for n in (first, self._first))
            input_bytes = stop - before
        head = source.head if self._samples_head and not first else None
        limits = (self._max_record_bytes, input_bytes, source.where, n_bytes, head)
        return RowBlock(batches, self._schema, first, source.names, *limits)

    def _left_bytes(self, n_bytes: int, n_rows: int) -> int | None:
        """Return the bytes that are left, if `n_bytes` for `n_rows` go on; None if unknown."""
        left_rows = self._source.n_rows - self._first
        return n_bytes * left_rows // n_rows if self._source.n_rows else None

    def origin(self) -> Place:
        """Return the rows before the slice; rows have no byte offset."""
        return Place(self._source.rows_before(), -1)

    def length(self) -> tuple[int, int]:
        """Return the rows of the slice, once all blocks were yielded, and 0."""
        return self._first, 0

    def close(self) -> None:
        """Close the file."""
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


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


def _with_columns(batch: pa.RecordBatch, more: pa.RecordBatch | None) -> pa.RecordBatch:
    """Return the rows that two batches have, with the columns that only `more` has after others."""
    if more is None:
        return batch
    n_rows = min(batch.num_rows, more.num_rows)
    names, others = batch.schema.names, more.schema.names
    added = [i for i, name in enumerate(others) if name not in names]
    columns = [*batch.columns, *(more.column(i) for i in added)]
    cut = [column.slice(0, n_rows) for column in columns]
    return pa.RecordBatch.from_arrays(cut, [*names, *(others[i] for i in added)])


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


def rows_format(
    open_file: Callable[[Slice, Reading], RowFile],
    suffix: str = "",
    unit_bytes: Callable[[SourceFile], Sequence[int]] | None = None,
    magic: bytes = b"",
    title: str = "",
    held_bytes: Callable[[SourceFile], int] | None = None,
) -> Format:
    """Return a format of files of rows, as Arrow batches; see `Format` and `RowFile`."""

    def open_rows(slice_: Slice, reading: Reading) -> RowReader:
        return RowReader(open_file(slice_, reading), reading)

    suffixes = (suffix,) if suffix else ()
    return Format(open_rows, suffixes, "rows", unit_bytes, False, False, magic, title, held_bytes)
