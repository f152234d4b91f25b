"""Blocks of rows that Arrow has read already: Parquet, Arrow files, a Hub dataset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from tokmill.batch import Place, Records, Reject
from tokmill.sources.blocks import RowLookup, row_as_json
from tokmill.sources.columns import fit_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from tokmill.sources.blocks import Block


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Rows of a table; `first` is the 0-based number of row 0 in the slice."""

    batch: pa.RecordBatch
    schema: pa.Schema
    first: int
    names: Sequence[str]
    max_record_bytes: int
    input_bytes: int
    where: str

    @property
    def n_bytes(self) -> int:
        """Give the weight of the block in memory."""
        return int(self.batch.nbytes)

    def parse(self) -> Records:
        """Give the records of the block.

        Raises:
            UsageError: a column has a type that does not fit.
        """
        fitted = fit_columns(self.batch, self.schema, self.max_record_bytes, self.where)
        rejects = [
            Reject(
                Place(self.first + bad.row + 1, -1),
                bad.reason,
                bad.message,
                row_as_json(self.batch, bad.row),
            )
            for bad in fitted.bad
        ]
        lookup = RowLookup(self.batch, fitted.rows, self.first, self.names)
        return Records(fitted.batch, lookup, rejects)


@dataclass(frozen=True, slots=True)
class RowSource:
    """An open file of rows.

    `batches(n)` gives the batches of the slice from its row n on, of any size. `n_rows`: rows of
    the slice, 0 if unknown. `n_bytes`: the input that they stand for. `rows_before` counts the rows
    of the file before the slice.
    """

    batches: Callable[[int], Iterable[pa.RecordBatch]]
    names: Sequence[str]
    n_rows: int
    n_bytes: int
    rows_before: Callable[[], int]
    close: Callable[[], None]
    where: str


class RowReader:
    """Reads the rows of a slice as blocks of about `batch_bytes`; larger batches are sliced."""

    def __init__(
        self,
        source: RowSource,
        schema: pa.Schema,
        batch_bytes: int,
        max_record_bytes: int,
        start: Place | None,
    ) -> None:
        self._source = source
        self._schema = schema
        self._batch_bytes = batch_bytes
        self._max_record_bytes = max_record_bytes
        self._first = start.line - 1 if start else 0

    def blocks(self) -> Iterator[Block]:
        """Give the blocks in order; to be called once."""
        source, first = self._source, self._first
        for batch in source.batches(first):
            for part in sliced(batch, self._batch_bytes):
                stop = first + part.num_rows
                n_bytes = self._input_bytes(stop, part) - self._input_bytes(first, None)
                limits = (self._max_record_bytes, n_bytes, source.where)
                yield RowBlock(part, self._schema, first, source.names, *limits)
                first = stop

    def _input_bytes(self, n_rows: int, batch: pa.RecordBatch | None) -> int:
        """Give the input that the first rows stand for; without a file, the batch's own bytes."""
        if self._source.n_rows:
            return self._source.n_bytes * n_rows // self._source.n_rows
        return int(batch.nbytes) if batch is not None else 0

    def origin(self) -> Place:
        """Give the rows before the slice; rows have no byte offset."""
        return Place(self._source.rows_before(), -1)

    def close(self) -> None:
        """Close the file."""
        self._source.close()

    def __enter__(self) -> Self:
        """Give the reader itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close the file."""
        self.close()


def sliced(batch: pa.RecordBatch, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Give slices of a batch of about `batch_bytes` each, without a copy."""
    n_slices = max(1, min(batch.num_rows, -(-batch.nbytes // batch_bytes)))
    step = -(-batch.num_rows // n_slices) or 1
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def dropped(batches: Iterable[pa.RecordBatch], n_rows: int) -> Iterator[pa.RecordBatch]:
    """Give the batches without the first `n_rows` rows."""
    for batch in batches:
        if n_rows < batch.num_rows:
            yield batch.slice(n_rows)
            n_rows = 0
        else:
            n_rows -= batch.num_rows
