"""Read Arrow IPC files and streams by record batches.

The file is memory-mapped, since one batch can be as large as the file; blocks are made from slices
of a batch. Mapped pages count as used memory, but the system takes them back when it needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from tokmill.errors import StorageError, UsageError
from tokmill.sources.bad_text import bytes_for_text, change_leaves
from tokmill.sources.blocks import HEAD_ROWS
from tokmill.sources.formats import Format
from tokmill.sources.row_reader import RowReader, wanted_columns
from tokmill.sources.streams import broken_file, unreadable
from tokmill.urls import is_store
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokmill.sources.blocks import Reading
    from tokmill.sources.slices import Slice, SourceFile

_MOST_ROWS_PER_BYTE = 1 << 16


def open_arrow(slice_: Slice, reading: Reading) -> RowReader:
    """Open the record batches `start` to `stop` of an Arrow file (all for stop -1).

    Raises:
        UsageError: the file is in an object store.
        StorageError: the file cannot be read or is not Arrow.
    """
    path = slice_.file.path
    names, rows = layout(path)
    stop = slice_.stop if slice_.stop >= 0 else len(rows)
    mapped = _map(path)
    columns = wanted_columns(path, names, reading)

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in _batches(path, mapped, slice_.start, stop):
            yield _checked(batch.select(columns), path)

    def head() -> pa.RecordBatch | None:
        batches = _batches(path, _map(path), slice_.start, stop)
        heads = (batch.slice(0, HEAD_ROWS) for batch in batches if batch.num_rows)
        return next((_checked(head, path) for head in heads), None)

    return RowReader(
        reading,
        path,
        names,
        batches,
        head,
        n_rows=sum(rows[slice_.start : stop]),
        n_bytes=slice_.n_bytes,
        rows_before=sum(rows[: slice_.start]),
        close=mapped.close,
    )


def layout(path: str) -> tuple[list[str], list[int]]:
    """Return the columns of an Arrow file and the rows of its record batches; see `open_arrow`.

    Cheap: only the headers of the batches are read.
    """
    with _map(path) as mapped:
        rows = [batch.num_rows for batch in _batches(path, mapped, 0, -1)]
        mapped.seek(0)
        try:
            return _reader(path, mapped).schema.names, rows
        except UnicodeDecodeError as error:
            raise broken_file(path, "Arrow", error) from None


def _map(path: str) -> pa.MemoryMappedFile:
    if is_store(path):
        raise UsageError(
            f"{path}: Arrow files are mapped into memory, which only works on a disk: copy the "
            "file to one first, or store it as Parquet"
        )
    try:
        return pa.memory_map(path)
    except OSError as error:
        raise unreadable(path, error) from None


def _reader(path: str, mapped: pa.MemoryMappedFile) -> pa.RecordBatchReader:
    """Return a reader of either layout: the file format, or the stream that `datasets` writes."""
    try:
        try:
            return pa.ipc.open_file(mapped)
        except pa.ArrowInvalid:
            mapped.seek(0)
        return pa.ipc.open_stream(mapped)
    except (pa.ArrowException, OSError) as error:
        raise broken_file(path, "Arrow", error) from None


def _batches(
    path: str, mapped: pa.MemoryMappedFile, start: int, stop: int
) -> Iterator[pa.RecordBatch]:
    """Yield the record batches `start` to `stop` (-1: the end) of a file in either layout."""
    try:
        mapped.seek(0)
        reader = _reader(path, mapped)
        if isinstance(reader, pa.RecordBatchFileReader):
            stop = reader.num_record_batches if stop < 0 else stop
            for i in range(start, stop):
                yield _plausible(reader.get_batch(i), path, mapped)
            return
        for i, batch in enumerate(reader):
            if 0 <= stop <= i:
                return
            if i >= start:
                yield _plausible(batch, path, mapped)
    except (pa.ArrowException, OSError) as error:
        raise broken_file(path, "Arrow", error) from None


def _plausible(batch: pa.RecordBatch, path: str, mapped: pa.MemoryMappedFile) -> pa.RecordBatch:
    """Return a batch; columns of nulls take no bytes, so that it may claim any number of rows."""
    most = _MOST_ROWS_PER_BYTE * mapped.size()
    if batch.num_rows > most:
        raise StorageError(
            f"{path}: expected at most {plural(most, 'row')} in a file of "
            f"{plural(mapped.size(), 'byte')}, "
            f"found a batch that claims {batch.num_rows:,}: the file is damaged"
        )
    return batch


def _checked(batch: pa.RecordBatch, path: str) -> pa.RecordBatch:
    """Return a batch whose offsets all lie in its buffers, which are the bytes of the file.

    Text that is not UTF-8 is found later, row by row.

    Raises:
        StorageError: they do not: Arrow would read outside of the file.
    """
    try:
        for column in batch.columns:
            column.validate()  # lengths: a view may have others
            column.view(change_leaves(column.type, bytes_for_text)).validate(full=True)
    except pa.ArrowException as error:
        raise broken_file(path, "Arrow", error) from None
    return batch


def _unit_bytes(file: SourceFile) -> list[int]:
    """Return the stored bytes of each record batch, by its rows."""
    _, rows = layout(file.path)
    return [file.n_bytes * n_rows // max(1, sum(rows)) for n_rows in rows]


ARROW = Format(
    open_arrow,
    (".arrow",),
    "rows",
    _unit_bytes,
    is_utf8=False,
    magic=b"ARROW1",
    title="an Arrow file",
)
