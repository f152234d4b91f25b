"""Read formats that Arrow reads as rows (Parquet, Arrow, a Hub dataset) as blocks of rows.

Blocks are limited by the bytes of their rows after decoding.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokmill.dataset.counts import SliceLength
from tokmill.errors import StorageError
from tokmill.sources.bad_text import by_row, change_leaves
from tokmill.sources.blocks import (
    HEAD_ROWS,
    as_read,
    columns_to_read,
    exact_record,
    json_record,
    metadata_of,
    next_block_bytes,
    row_batch,
    row_samples,
    too_large,
    wants_record_json,
)
from tokmill.sources.columns import fit_columns, is_text
from tokmill.sources.streams import check_ratio
from tokmill.values import RAW_LIMIT_BYTES, BlockEnd, RecordPlace, Records, Reject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy.typing as npt

    from tokmill.sources.blocks import Reading, Samples


_MOST_LOOKED_AT = 1 << 20

MOST_FITTED_BYTES = 1 << 30
"""Larger rows are rejected before they are copied: a copy would need offsets of over 32 bits."""

_DECODED_ROWS = 512
"""Rows of a batch with dictionaries that are decoded at a time: they hold a text once for all."""


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Rows of a table in several batches; `first` is the 0-based number of row 0 in the slice.

    `input_bytes`: its share of the stored bytes. `n_bytes`: memory of the rows once decoded.
    `renderer`: see `BytesBlock`.
    """

    batches: Sequence[pa.RecordBatch]
    source: RowReader
    first: int
    input_bytes: int
    n_bytes: int
    renderer: str = ""

    def parse(self) -> Records:
        """Return the records, with places counted from the start of the slice; thread safe.

        Raises:
            UsageError: a column has a type that does not fit.
        """
        reading, batches = self.source.reading, self.batches
        batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        limit = reading.settings.max_record_bytes
        is_refused = self.n_bytes > MOST_FITTED_BYTES and batch.num_rows == 1
        fitted = fit_columns(
            batch.slice(0, 0) if is_refused else batch,
            reading.schema,
            reading.settings,
            self.source.where,
        )
        refused = fitted.refused
        if is_refused:
            refused = too_large(np.array([self.n_bytes]), limit)
        rejects = [
            Reject(RecordPlace(self.first + row + 1, -1), *refused[row], row_as_json(batch, row))
            for row in sorted(refused)
        ]
        rows = fitted.rows
        return Records(
            fitted.batch,
            np.stack((rows + (1 + self.first), np.full(len(rows), -1)), axis=1),
            raw=lambda row: row_as_json(batch, int(rows[row])),
            keys=lambda _: list(self.source.names),
            whole=lambda: self._whole(batch, rows),
            rejects=rejects,
            ends=[BlockEnd(len(rows), len(rejects), None)],
            samples=self._samples(batch, rows),
            metadata=self._metadata(batch, rows) if reading.settings.keep else None,
            replaced=by_row(fitted.replaced, rows),
            doubtful=by_row(fitted.doubtful, rows),
        )

    def _metadata(self, batch: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> pa.RecordBatch:
        """Return the fields that are kept of some rows; null if a value of them is not UTF-8."""
        settings = self.source.reading.settings
        columns = columns_to_read(pa.schema([]), batch.schema.names, settings.keep)
        replaced = Counter[int]() if settings.replaces_bad_text else None
        texts = row_batch(batch.select(columns).take(rows), {}, replaced).column(0)
        return metadata_of((exact_record(text or "") for text in texts.to_pylist()), settings)

    def _whole(
        self, batch: pa.RecordBatch, rows: npt.NDArray[np.int64]
    ) -> Iterator[dict[str, Any] | None]:
        """Yield some rows as dicts, as a function that gets whole records has them."""
        texts = row_batch(batch.take(rows), {}, None, {}).column(0)
        records = (json_record(text or "") for text in texts.to_pylist())
        yield from as_read(records, self.source.reading.settings)

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


def row_as_json(batch: pa.RecordBatch, row: int) -> bytes:
    """Return the first `RAW_LIMIT_BYTES` bytes of a row as JSON; bytes not UTF-8 are escaped."""
    values = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            values[name] = _value(column[row])
        except UnicodeDecodeError as error:
            values[name] = error.object.decode("utf-8", "backslashreplace")
    return json.dumps(values, ensure_ascii=False, default=repr).encode()[:RAW_LIMIT_BYTES]


def _value(cell: pa.Scalar) -> Any:
    """Return the Python value of a cell; a long text is shortened."""
    if not isinstance(cell, pa.BinaryScalar) or not cell.is_valid:
        return cell.as_py()
    data = cell.as_buffer()[:_MOST_LOOKED_AT].to_pybytes()
    return data.decode("utf-8", "backslashreplace") if isinstance(cell, pa.StringScalar) else data


@dataclass(slots=True)
class RowReader:
    """Reads the rows of a slice as blocks of at most `batch_bytes`, decoded.

    Larger batches are split and smaller ones joined. A larger row is a block of its own. For
    smaller blocks at both ends see `next_block_bytes`.

    `batches()` returns the batches of the slice, of any size. `n_rows`: rows of the slice, 0 if
    unknown. `n_bytes`: its stored bytes. `rows_before` counts the rows of the file before the
    slice. `head` reads the first rows of the columns that the batches lack; None if they lack none.
    """

    reading: Reading
    where: str
    names: Sequence[str]
    batches: Callable[[], Iterable[pa.RecordBatch]]
    head: Callable[[], pa.RecordBatch | None] = lambda: None
    n_rows: int = 0
    n_bytes: int = 0
    rows_before: int = 0
    close: Callable[[], None] = lambda: None
    _first: int = field(default=0, init=False)
    """The rows that blocks were made of."""

    def blocks(self) -> Iterator[RowBlock]:
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
            for part in split_rows(batch, limit):
                n_bytes = part.nbytes
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
        return RecordPlace(self.rows_before, -1)

    def length(self) -> SliceLength:
        """Return the rows of the slice, once all blocks were yielded, and 0."""
        return SliceLength(self._first, 0)


def split_rows(batch: pa.RecordBatch, n_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows in slices of at most `n_bytes`, a larger row alone; decoded, else not copied.

    The memory of a dictionary does not tell the size of its rows, so these are decoded first.
    """
    kinds = [decoded_type(kind) for kind in batch.schema.types]
    is_plain = kinds == batch.schema.types
    most_rows = batch.num_rows
    if not is_plain:
        longest = sum(map(_longest_bytes, batch.columns))
        most_rows = min(_DECODED_ROWS, max(1, n_bytes // max(1, longest)))
    start = 0
    while start < batch.num_rows:
        part = batch.slice(start, most_rows)
        start += most_rows
        if not is_plain:
            columns = map(_decoded, part.columns, kinds)
            part = pa.RecordBatch.from_arrays(list(columns), batch.schema.names)
        pending = [part]
        while pending:
            part = pending.pop()
            if part.num_rows == 1 or part.nbytes <= n_bytes:
                yield part
            else:
                half = part.num_rows // 2
                pending += [part.slice(half), part.slice(0, half)]


def _longest_bytes(array: pa.Array) -> int:
    """Return the most bytes that a row can take from dictionaries."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        values = array.dictionary
        if not is_text(kind.value_type):
            return int(values.nbytes)
        return pc.max(pc.binary_length(values.cast(decoded_type(kind.value_type)))).as_py() or 0
    if pa.types.is_struct(kind):
        return sum(map(_longest_bytes, array.flatten()))
    if has_dictionary(kind):
        longest = pc.max(pc.list_value_length(array)).as_py() or 0
        return int(longest * _longest_bytes(array.flatten()))
    return 0


def _decoded(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        return column.dictionary_decode()
    try:
        return column.cast(kind)
    except pa.ArrowNotImplementedError:  # dictionaries of structs in a list
        return pa.array(column.to_pylist(), kind)


def has_dictionary(kind: pa.DataType) -> bool:
    """Return whether an array of a type has dictionaries, at any depth."""
    inner = (kind.field(i).type for i in range(kind.num_fields))
    return pa.types.is_dictionary(kind) or any(map(has_dictionary, inner))


def decoded_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which an array takes the memory of its own rows."""
    views = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    return change_leaves(
        kind,
        lambda leaf: leaf.value_type if pa.types.is_dictionary(leaf) else views.get(leaf, leaf),
    )


def wanted_columns(path: str, names: Sequence[str], reading: Reading) -> list[str]:
    """Return the columns of a file, out of `names`, that must be read.

    Raises:
        StorageError: it has several of a name that is read: Arrow would give none of them.
    """
    settings = reading.settings
    wanted = columns_to_read(reading.schema, names, settings.keep, settings.where)
    repeated = next((name for name in wanted if names.count(name) > 1), None)
    if repeated is not None:
        raise StorageError(
            f"{path}: has {names.count(repeated)} columns named {repeated!r}, expected one: rename "
            "or remove the others"
        )
    return wanted
