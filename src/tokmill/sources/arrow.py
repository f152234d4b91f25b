"""Reads Arrow IPC files and streams by record batches.

The file is mapped into memory: a batch can be as large as its file, and is read a slice at a time.
Its pages count as used memory, but the system takes them back when it needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from tokmill.errors import StorageError
from tokmill.sources.field_samples import HEAD_ROWS
from tokmill.sources.record_json import wanted_names
from tokmill.sources.row_reader import RowFile, RowReader, dropped
from tokmill.sources.streams import unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokmill.sources.slices import Slice
    from tokmill.values import Place


def open_arrow(
    piece: Slice,
    schema: pa.Schema,
    batch_bytes: int,
    max_record_bytes: int,
    start: Place | None,
    *,
    samples_head: bool = False,
) -> RowReader:
    """Open the record batches `start` to `stop` of an Arrow file (all for stop -1).

    Raises:
        StorageError: the file cannot be read or is not Arrow.
    """
    path = piece.file.path
    rows = batch_rows(path)
    stop = piece.stop if piece.stop >= 0 else len(rows)
    mapped = _map(path)

    def whole_batches() -> Iterator[pa.RecordBatch]:
        return (batch for batch in _batches(path, _map(path), piece.start, stop) if batch.num_rows)

    def batches(first: int) -> Iterator[pa.RecordBatch]:
        wanted = _batches(path, mapped, piece.start, stop)
        return dropped((batch.select(present) for batch in wanted), first)

    names = arrow_schema(path).names
    present = wanted_names(schema, names)
    source = RowFile(
        batches=batches,
        names=names,
        n_rows=sum(rows[piece.start : stop]),
        n_bytes=piece.n_bytes,
        rows_before=lambda: sum(rows[: piece.start]),
        close=mapped.close,
        where=path,
        head=lambda: next((b.slice(0, HEAD_ROWS) for b in whole_batches()), None),
    )
    limits = (batch_bytes, max_record_bytes, start)
    return RowReader(source, schema, *limits, samples_head=samples_head)


def arrow_schema(path: str) -> pa.Schema:
    """Give the schema of an Arrow file; raises as `open_arrow`."""
    with _map(path) as mapped:
        return _reader(path, mapped).schema


def batch_rows(path: str) -> list[int]:
    """Give the rows of each record batch of an Arrow file; raises as `open_arrow`.

    Cheap: the file is mapped and only the headers of its batches are looked at.
    """
    with _map(path) as mapped:
        return [batch.num_rows for batch in _batches(path, mapped, 0, -1)]


def _map(path: str) -> pa.MemoryMappedFile:
    try:
        return pa.memory_map(path)
    except OSError as error:
        raise unreadable(path, error) from None


def _reader(path: str, mapped: pa.MemoryMappedFile) -> pa.RecordBatchReader:
    """Give a reader of either layout: the file format, or the stream that `datasets` writes."""
    try:
        return pa.ipc.open_file(mapped)
    except pa.ArrowInvalid:
        mapped.seek(0)
    try:
        return pa.ipc.open_stream(mapped)
    except (pa.ArrowInvalid, OSError) as error:
        raise _broken(path, error) from None


def _batches(
    path: str, mapped: pa.MemoryMappedFile, start: int, stop: int
) -> Iterator[pa.RecordBatch]:
    try:
        mapped.seek(0)
        reader = _reader(path, mapped)
        if isinstance(reader, pa.RecordBatchFileReader):
            stop = reader.num_record_batches if stop < 0 else stop
            yield from (reader.get_batch(i) for i in range(start, stop))
            return
        for i, batch in enumerate(reader):
            if 0 <= stop <= i:
                return
            if i >= start:
                yield batch
    except (pa.ArrowInvalid, OSError) as error:
        raise _broken(path, error) from None


def _broken(path: str, error: Exception) -> StorageError:
    first_line = (str(error).splitlines() or ["unreadable"])[0].rstrip(".")
    return StorageError(f"{path}: expected a whole Arrow file: {first_line}")
