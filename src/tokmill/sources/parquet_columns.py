"""What a Parquet footer says of each column of a row group, read without risk.

`RowGroupMetaData.column` of pyarrow makes an object of C++ that throws where the footer is damaged.
Nothing catches that, and the process ends by SIGABRT. The reader of rows makes the same object
before it reads a page, and turns the error into an exception. So each row group is first opened by
a reader whose file holds no data (0.2 ms for 12 columns), and only columns that it accepts are
asked for.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_FILE_BYTES = 1 << 62


@dataclass(frozen=True, slots=True)
class ColumnSize:
    """Bytes of a column of a row group: in the file (`stored`), before compression (`plain`)."""

    name: str
    stored: int
    plain: int


class ParquetColumns:
    """The columns of each row group of a footer."""

    def __init__(self, file: pq.ParquetFile) -> None:
        import pyarrow.parquet as pq

        self._metadata = file.metadata
        # A buffered reader opens a column without a read.
        opener = pq.ParquetFile(_NoData(), metadata=file.metadata, pre_buffer=False, buffer_size=1)
        self._opener = opener.reader

    def sizes(self, group: int) -> list[ColumnSize]:
        """Return the sizes of a row group's columns, without those that pyarrow cannot open."""
        found = self._metadata.row_group(group)
        columns = list(range(found.num_columns))
        if not self._can_open(group, columns):
            columns = [i for i in columns if self._can_open(group, [i])]
        return [
            ColumnSize(
                self._metadata.schema.column(i).path,
                found.column(i).total_compressed_size,
                found.column(i).total_uncompressed_size,
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
