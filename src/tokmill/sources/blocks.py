"""What a source gives: a slice is read as blocks, and a block is parsed into records.

Reading is cheap and stays on one thread; parsing is heavy, thread safe, and leaves the interpreter
free, so blocks of one slice can be parsed on several threads and handed on in order.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import pyarrow as pa

from tokmill.values import RAW_LIMIT_BYTES, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

    from tokmill.values import Records

Bytes = bytes | bytearray

_MOST_LOOKED_AT = 1 << 20


class Block(Protocol):
    """A piece of a slice that holds whole records, not parsed yet."""

    @property
    def n_bytes(self) -> int:
        """Give the weight of the block in memory."""

    @property
    def input_bytes(self) -> int:
        """Give the bytes of the file that were read to make it (compressed ones if compressed)."""

    def parse(self) -> Records:
        """Give the records; thread safe. Their places are counted from the start of the slice."""


class SliceReader(Protocol):
    """Reads one slice, once, from its start or from a given record."""

    def blocks(self) -> Iterator[Block]:
        """Give the blocks in order; to be called once, from one thread.

        Raises:
            StorageError: the file cannot be read, or is not what its ending says.
        """

    def origin(self) -> Place:
        """Give what turns a place of this slice into one of the file, by `Place.shifted`.

        It may read the file from its start (in bounded memory), so ask only to report a place.
        """

    def close(self) -> None:
        """Close the file."""

    def __enter__(self) -> Self:
        """Give the reader itself."""

    def __exit__(self, *exc_info: object) -> None:
        """Close the file."""


@dataclass(frozen=True, slots=True)
class SpanLookup:
    """Answers for records that are spans of bytes of a block.

    `starts`, `stops`: (n_rows,) int64, bytes of each row in `data`. `numbers`: (n_rows,) int64,
    0-based number of each row's record in the block. `origin` shifts places from block to slice.
    """

    data: Bytes
    starts: npt.NDArray[np.int64]
    stops: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.int64]
    origin: Place
    find_keys: Callable[[bytes], list[str]]

    def place(self, row: int) -> Place:
        """Give the place of row `row`, counted from the start of the slice."""
        return Place(int(self.numbers[row]) + 1, int(self.starts[row])).shifted(self.origin)

    def raw(self, row: int) -> bytes:
        """Give the first `RAW_LIMIT_BYTES` bytes of row `row`."""
        return first_bytes(self.data, int(self.starts[row]), int(self.stops[row]))

    def whole(self, row: int) -> bytes:
        """Give all bytes of row `row`."""
        return bytes(memoryview(self.data)[self.starts[row] : self.stops[row]])

    def keys(self, row: int) -> list[str]:
        """Give the top-level keys of row `row`, in order."""
        return self.find_keys(self.whole(row))


@dataclass(frozen=True, slots=True)
class RowLookup:
    """Answers for records that are rows of a table.

    `batch` holds the wanted columns as read, its row 0 being row `first` (0-based) of the slice;
    `rows`: (n_rows,) int64, the row of it for each row asked for; `names`: all columns of the file.
    """

    batch: pa.RecordBatch
    rows: npt.NDArray[np.int64]
    first: int
    names: Sequence[str]

    def place(self, row: int) -> Place:
        """Give the place of row `row`: its number in the slice; rows have no byte offset."""
        return Place(self.first + int(self.rows[row]) + 1, -1)

    def raw(self, row: int) -> bytes:
        """Give the first `RAW_LIMIT_BYTES` bytes of row `row`, written as JSON."""
        return row_as_json(self.batch, int(self.rows[row]))

    def keys(self, row: int) -> list[str]:
        """Give the columns of the file."""
        return list(self.names)


def row_as_json(batch: pa.RecordBatch, row: int) -> bytes:
    """Return the first `RAW_LIMIT_BYTES` bytes of a row as JSON, what is not UTF-8 escaped."""
    values = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            values[name] = _value(column[row])
        except UnicodeDecodeError as error:
            values[name] = error.object.decode("utf-8", "backslashreplace")
    return json.dumps(values, ensure_ascii=False, default=repr).encode()[:RAW_LIMIT_BYTES]


def _value(cell: pa.Scalar) -> Any:
    """Return a cell as Python has it; of a long text far more than is shown, but not all."""
    if isinstance(cell, pa.DictionaryScalar):
        cell = cell.value
    if not isinstance(cell, pa.BinaryScalar) or not cell.is_valid:
        return cell.as_py()
    data = cell.as_buffer()[:_MOST_LOOKED_AT].to_pybytes()
    return data.decode("utf-8", "backslashreplace") if isinstance(cell, pa.StringScalar) else data


def first_bytes(data: Bytes, start: int, stop: int) -> bytes:
    """Give at most `RAW_LIMIT_BYTES` bytes of `data[start:stop]`."""
    return bytes(memoryview(data)[start : min(stop, start + RAW_LIMIT_BYTES)])
