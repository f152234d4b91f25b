"""Reads Parquet by row groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from tokmill.errors import StorageError
from tokmill.sources.rows import RowReader, RowSource, dropped
from tokmill.sources.streams import unreadable
from tokmill.sources.whole import wanted_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokmill.batch import Place
    from tokmill.sources.slices import Slice

_READ_BYTES = 1 << 20


def open_parquet(
    piece: Slice, schema: pa.Schema, batch_bytes: int, max_record_bytes: int, start: Place | None
) -> RowReader:
    """Open the row groups `start` to `stop` of a Parquet file (all for stop -1).

    Raises:
        StorageError: the file cannot be read or is not Parquet.
    """
    file = open_file(piece.file.path)
    metadata = file.metadata
    stop = piece.stop if piece.stop >= 0 else metadata.num_row_groups
    rows = [metadata.row_group(i).num_rows for i in range(stop)]
    groups = range(piece.start, stop)
    wanted = wanted_names(schema, file.schema_arrow.names)

    def batches(first: int) -> Iterator[pa.RecordBatch]:
        left = list(groups)
        while left and first >= rows[left[0]]:
            first -= rows[left.pop(0)]
        size = _batch_rows(file, left, wanted, batch_bytes)
        found = file.iter_batches(size, left, wanted, use_threads=False) if left else iter(())
        return dropped(_readable(found, piece.file.path), first)

    source = RowSource(
        batches=batches,
        names=file.schema_arrow.names,
        n_rows=sum(rows[piece.start :]),
        n_bytes=piece.n_bytes,
        rows_before=lambda: sum(rows[: piece.start]),
        close=file.close,
        where=piece.file.path,
    )
    return RowReader(source, schema, batch_bytes, max_record_bytes, start)


def open_file(path: str) -> pq.ParquetFile:
    """Open a Parquet file; the caller closes it.

    Raises:
        StorageError: it cannot be read or is not Parquet.
    """
    try:
        # Read through a buffer, or a whole row group of compressed columns lies in memory.
        return pq.ParquetFile(path, pre_buffer=False, buffer_size=_READ_BYTES)
    except pa.ArrowInvalid as error:
        raise _broken(path, error) from None
    except OSError as error:
        raise unreadable(path, error) from None


def group_bytes(path: str) -> list[int]:
    """Give the stored bytes of each row group.

    Raises:
        StorageError: the file cannot be read or is not Parquet.
    """
    with open_file(path) as file:
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
        return [
            sum(group.column(i).total_compressed_size for i in range(group.num_columns))
            for group in groups
        ]


def _batch_rows(file: pq.ParquetFile, groups: list[int], names: list[str], batch_bytes: int) -> int:
    """Give the rows of about `batch_bytes` of the wanted columns, by the average row."""
    n_bytes = n_rows = 0
    for i in groups:
        group = file.metadata.row_group(i)
        n_rows += group.num_rows
        columns = (group.column(j) for j in range(group.num_columns))
        n_bytes += sum(
            column.total_uncompressed_size
            for column in columns
            if column.path_in_schema.split(".")[0] in names
        )
    return max(1, min(batch_bytes * n_rows // max(1, n_bytes), 1 << 20))


def _readable(batches: Iterator[pa.RecordBatch], path: str) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except (pa.ArrowInvalid, OSError) as error:
        raise _broken(path, error) from None


def _broken(path: str, error: Exception) -> StorageError:
    first_line = (str(error).splitlines() or ["unreadable"])[0].rstrip(".")
    return StorageError(f"{path}: expected a whole Parquet file: {first_line}")
