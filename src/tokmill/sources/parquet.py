"""Read Parquet files by row groups."""

from __future__ import annotations

import io
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from tokmill.sources.blocks import HEAD_ROWS
from tokmill.sources.formats import Format
from tokmill.sources.row_reader import RowReader, has_dictionary, wanted_columns
from tokmill.sources.streams import broken_file, check_ratio, open_binary, unreadable
from tokmill.urls import is_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow.parquet as pq

    from tokmill.sources.blocks import Reading
    from tokmill.sources.slices import Slice, SourceFile

_READ_BYTES = 1 << 20
_REMOTE_READ_BYTES = 4 << 20  # for each column: few requests to a store

_PAGE_ROWS = 1024
_FILE_BYTES = 1 << 62

_FIRST_ROWS = 32
_MOST_ROWS = 512
"""Measured with rows of 4 kB: larger batches are not read faster."""

_MOST_DICTIONARY_ROWS = 1 << 15
"""The limit if all columns are dictionaries. Each batch copies the dictionaries, and its rows are
indices of four bytes until a block decodes them."""


def open_parquet(slice_: Slice, reading: Reading) -> RowReader:
    """Open the row groups `start` to `stop` of a Parquet file (all for stop -1).

    Raises:
        StorageError: the file cannot be read or is not Parquet, or holds too much for its size.
    """
    path = slice_.file.path
    file = open_file(path)
    stop = slice_.stop if slice_.stop >= 0 else file.metadata.num_row_groups
    rows = [file.metadata.row_group(i).num_rows for i in range(stop)]
    groups = range(slice_.start, stop)
    names = file.schema_arrow.names
    columns = wanted_columns(path, names, reading)
    footer = ParquetColumns(file)
    for column in chain.from_iterable(map(footer.sizes, groups)):  # before 2 GB are unpacked
        sizes = column.stored, column.plain
        max_ratio = reading.settings.max_decompression_ratio
        check_ratio(f"{path}: column {column.name}", *sizes, max_ratio)

    def batches() -> Iterator[pa.RecordBatch]:
        return _readable(_batches(file, footer, groups, columns, reading.batch_bytes), path)

    return RowReader(
        reading,
        path,
        names,
        batches,
        head=lambda: _head(path, groups, [name for name in names if name not in columns]),
        n_rows=sum(rows[slice_.start :]),
        n_bytes=slice_.n_bytes,
        rows_before=sum(rows[: slice_.start]),
        close=file.close,
    )


def _head(path: str, groups: Sequence[int], columns: list[str]) -> pa.RecordBatch | None:
    """Return the first rows of row groups with some columns, through a reader of its own.

    Not the columns that the run reads: a column of long rows would be in memory twice.
    """
    if not columns:
        return None
    with open_file(path) as file:
        batches = file.iter_batches(HEAD_ROWS, groups, columns, use_threads=False)
        return next(_readable(batches, path), None)


def open_file(path: str) -> pq.ParquetFile:
    """Open a Parquet file; the caller closes it.

    Raises:
        StorageError: it cannot be read or is not Parquet.
    """
    import pyarrow.parquet as pq  # takes 10 ms, and suffixes need only the table of formats

    is_remote = is_store(path)
    try:
        # Without the buffer, all compressed columns of a row group would be in memory.
        return pq.ParquetFile(
            open_binary(path) if is_remote else path,
            pre_buffer=False,
            buffer_size=_REMOTE_READ_BYTES if is_remote else _READ_BYTES,
        )
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise broken_file(path, "Parquet", error) from None
    except OSError as error:
        raise unreadable(path, error) from None


def group_bytes(source: SourceFile) -> list[int]:
    """Return the stored bytes of each row group.

    Raises:
        StorageError: the file cannot be read or is not Parquet.
    """
    with open_file(source.path) as file:
        footer = ParquetColumns(file)
        return [
            sum(column.stored for column in footer.sizes(i))
            for i in range(file.metadata.num_row_groups)
        ]


def page_bytes(source: SourceFile) -> int:
    """Return about the most memory that a page of the file takes: long rows make large pages.

    Writers end a page at 1 MiB, but look only after every `_PAGE_ROWS` rows (Arrow's default), and
    pyarrow keeps a page of a dictionary a second time, as values.

    Raises:
        StorageError: the file cannot be read or is not Parquet.
    """
    with open_file(source.path) as file:
        footer = ParquetColumns(file)
        return max(
            (
                2 * column.plain * min(_PAGE_ROWS, n_rows) // max(n_rows, 1)
                for i in range(file.metadata.num_row_groups)
                for n_rows in [file.metadata.row_group(i).num_rows]
                for column in footer.sizes(i)
            ),
            default=0,
        )


def _batches(
    file: pq.ParquetFile,
    footer: ParquetColumns,
    groups: Sequence[int],
    wanted: list[str],
    batch_bytes: int,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of row groups in batches of about `batch_bytes`, not counting dictionaries.

    A file does not say how large its next rows are: a dictionary stores 10 kB once for a million
    rows, and long rows may follow short ones. So the rows of a batch are limited to twice those of
    the batch before, to `most`, and to an estimate from the last batch and the rest of the group.
    """
    batches: Iterator[pa.RecordBatch] | None = None
    kinds = dict(zip(file.schema_arrow.names, file.schema_arrow.types, strict=True))
    plain = [name for name in wanted if not has_dictionary(kinds[name])]
    rows, most = _FIRST_ROWS, _MOST_ROWS if plain or not wanted else _MOST_DICTIONARY_ROWS
    for i in groups:
        left_rows = file.metadata.row_group(i).num_rows
        sizes = footer.sizes(i)
        left_bytes = sum(size.plain for size in sizes if size.name.split(".")[0] in plain)
        while left_rows > 0:
            expected = batch_bytes * left_rows // max(left_bytes, 1)
            rows = max(1, min(rows, expected, left_rows))
            if batches is None:
                batches = file.iter_batches(rows, groups, wanted, use_threads=False)
            else:
                file.reader.set_batch_size(rows)  # counts from the next batch on
            batch = next(batches, None)
            if batch is None:
                return
            yield batch
            n_bytes = max(1, batch.select(plain).nbytes)
            left_rows -= batch.num_rows
            left_bytes = max(0, left_bytes - n_bytes)
            rows = min(2 * rows, most, batch_bytes * batch.num_rows // n_bytes)


def _readable(batches: Iterator[pa.RecordBatch], path: str) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except (pa.ArrowException, OSError) as error:
        raise broken_file(path, "Parquet", error) from None


@dataclass(frozen=True, slots=True)
class ColumnSize:
    """Bytes of a column of a row group: in the file (`stored`), before compression (`plain`)."""

    name: str
    stored: int
    plain: int


class ParquetColumns:
    """The columns of each row group of a footer, read without risk.

    `RowGroupMetaData.column` of pyarrow makes an object of C++ that throws where the footer is
    damaged. Nothing catches that, and the process ends by SIGABRT. The reader of rows makes the
    same object before it reads a page, and turns the error into an exception. So each row group is
    first opened by a reader whose file holds no data (0.2 ms for 12 columns), and only columns that
    it accepts are asked for.
    """

    def __init__(self, file: pq.ParquetFile) -> None:
        import pyarrow.parquet as pq

        self._metadata = file.metadata
        # A buffered reader opens a column without a read.
        opener = pq.ParquetFile(_NoData(), metadata=file.metadata, pre_buffer=False, buffer_size=1)
        self._opener = opener.reader

    def sizes(self, group: int) -> list[ColumnSize]:
        """Return the sizes of a row group's columns, without those that pyarrow cannot open."""
        row_group = self._metadata.row_group(group)
        columns = list(range(row_group.num_columns))
        if not self._can_open(group, columns):
            columns = [i for i in columns if self._can_open(group, [i])]
        return [
            ColumnSize(
                self._metadata.schema.column(i).path,
                row_group.column(i).total_compressed_size,
                row_group.column(i).total_uncompressed_size,
            )
            for i in columns
        ]

    def _can_open(self, group: int, columns: list[int]) -> bool:
        try:
            next(self._opener.iter_batches(1, [group], columns, use_threads=False), None)
        except _OpenedError:
            return True
        except (pa.ArrowException, OSError):
            return False
        return True


class _OpenedError(Exception):
    """All columns were opened, and the first page was asked for."""


class _NoData(io.RawIOBase):
    """A large file that cannot be read."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return _FILE_BYTES if whence == io.SEEK_END else offset

    def tell(self) -> int:
        return _FILE_BYTES

    def read(self, size: int = -1) -> bytes:
        raise _OpenedError


PARQUET = Format(
    open_parquet,
    (".parquet",),
    "rows",
    group_bytes,
    is_utf8=False,
    magic=b"PAR1",
    title="Parquet",
    held_bytes=page_bytes,
)
