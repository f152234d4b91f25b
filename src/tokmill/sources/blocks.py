"""Blocks, which a slice is read as, and lookups of the records that a block was parsed into.

Reading is cheap and stays on one thread. Parsing is heavy, thread safe and releases the GIL, so
that blocks of one slice can be parsed on several threads and passed on in order.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from tokmill.sources.utf8 import Bytes, invalid_spans, utf8_message
from tokmill.values import RAW_LIMIT_BYTES, RecordPlace, Reject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from tokmill.values import Records

_MOST_LOOKED_AT = 1 << 20
_LEAST_BYTES = 256 << 10


class Block(Protocol):
    """A range of a slice that ends where a record ends, not parsed yet."""

    @property
    def n_bytes(self) -> int:
        """Return the memory that the block takes."""

    @property
    def input_bytes(self) -> int:
        """Return the bytes of the file that were read for it, as stored (compressed or not)."""

    def parse(self) -> Records:
        """Return the records, with places counted from the start of the slice; thread safe."""


class SliceReader(Protocol):
    """Reads one slice, once."""

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks in order; to be called once, from one thread.

        Raises:
            StorageError: the file cannot be read, or is not what its ending says.
        """

    def origin(self) -> RecordPlace:
        """Return the place where the slice begins, to turn its places into places of the file.

        It may read the file from its start (in bounded memory): call it only to report a place.
        """

    def length(self) -> tuple[int, int]:
        """Return the lines and bytes (or rows and 0) of a slice of a cut file, once it was read."""

    def close(self) -> None:
        """Close the file."""


@dataclass(frozen=True, slots=True)
class SpanLookup:
    """Finds the place, bytes and keys of records that are spans of bytes of a block.

    `starts`, `stops`: (n_rows,) int64, bytes of each row in `data`. `numbers`: (n_rows,) int64,
    0-based number of each row's record in the block. `origin` shifts places from block to slice.
    `read` returns the record that some bytes are, None if Python cannot read it.
    """

    data: Bytes
    starts: npt.NDArray[np.int64]
    stops: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.int64]
    origin: RecordPlace
    read: Callable[[bytes], dict[str, Any] | None]

    def place(self, row: int) -> RecordPlace:
        """Return the place of a row, counted from the start of the slice."""
        return RecordPlace(int(self.numbers[row]) + 1, int(self.starts[row])).shifted(self.origin)

    def places(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the line and the byte offset of the place of each row."""
        origin = (1 + self.origin.line, self.origin.byte_offset)
        return np.stack((self.numbers[rows], self.starts[rows]), axis=1) + origin

    def raw(self, row: int) -> bytes:
        """Return the first `RAW_LIMIT_BYTES` bytes of a row."""
        return first_bytes(self.data, int(self.starts[row]), int(self.stops[row]))

    def record(self, row: int) -> dict[str, Any] | None:
        """Return a row with all its fields; None if Python cannot read it."""
        return self.read(bytes(memoryview(self.data)[self.starts[row] : self.stops[row]]))

    def keys(self, row: int) -> list[str]:
        """Return the top-level keys of a row, in order."""
        return list(self.record(row) or ())


@dataclass(frozen=True, slots=True)
class RowLookup:
    """Finds the place, bytes and keys of records that are rows of a table.

    `batch` holds the wanted columns as read, its row 0 being row `first` (0-based) of the slice;
    `rows`: (n_rows,) int64, the row of it for each row asked for; `names`: all columns of the file.
    """

    batch: pa.RecordBatch
    rows: npt.NDArray[np.int64]
    first: int
    names: Sequence[str]

    def place(self, row: int) -> RecordPlace:
        """Return the place of a row: its number in the slice; rows have no byte offset."""
        return RecordPlace(self.first + int(self.rows[row]) + 1, -1)

    def places(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the number of each row in the slice, and -1 for its byte offset."""
        return np.stack((self.rows[rows] + (1 + self.first), np.full(len(rows), -1)), axis=1)

    def raw(self, row: int) -> bytes:
        """Return the first `RAW_LIMIT_BYTES` bytes of a row, written as JSON."""
        return row_as_json(self.batch, int(self.rows[row]))

    def keys(self, row: int) -> list[str]:
        """Return the columns of the file."""
        return list(self.names)


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
    if isinstance(cell, pa.DictionaryScalar):
        cell = cell.value
    if not isinstance(cell, pa.BinaryScalar) or not cell.is_valid:
        return cell.as_py()
    data = cell.as_buffer()[:_MOST_LOOKED_AT].to_pybytes()
    return data.decode("utf-8", "backslashreplace") if isinstance(cell, pa.StringScalar) else data


def next_block_bytes(last_bytes: int, batch_bytes: int, left_bytes: int | None = None) -> int:
    """Return the size of the block after one of `last_bytes`, 0 for the first block of a slice.

    The first blocks are smaller, so that all threads have work soon and a wrong file is noticed
    early. The last ones are smaller, so that threads end at nearly the same time: a block is at
    most half of what is left, if that is known. The size of blocks changes no record.
    """
    most = batch_bytes if left_bytes is None else min(batch_bytes, left_bytes // 2)
    return min(batch_bytes, max(_LEAST_BYTES, min(2 * last_bytes, most)))


def too_large_message(n_bytes: int, max_record_bytes: int, advice: str = "") -> str:
    """Return the message for a record that is over the limit."""
    return f"{n_bytes} bytes, over max_record_bytes = {max_record_bytes}{advice}"


def first_bytes(data: Bytes, start: int, stop: int) -> bytes:
    """Return at most `RAW_LIMIT_BYTES` bytes of `data[start:stop]`."""
    return bytes(memoryview(data)[start : min(stop, start + RAW_LIMIT_BYTES)])


def refuse_unfit(
    data: Bytes,
    starts: npt.NDArray[np.int64],
    stops: npt.NDArray[np.int64],
    limit: int,
    advice: str = "",
) -> dict[int, tuple[str, str]]:
    """Return (reason, message) of the spans that must not be parsed: too large, or not UTF-8."""
    view = memoryview(data)
    refused = {
        row: ("invalid UTF-8", utf8_message(bytes(view[starts[row] : stops[row]])))
        for row in invalid_spans(data, starts, stops)
    }
    sizes = stops - starts
    for row in np.flatnonzero(sizes > limit).tolist():
        refused[row] = "record too large", too_large_message(int(sizes[row]), limit, advice)
    return refused


def span_rejects(
    data: Bytes,
    starts: npt.NDArray[np.int64],
    stops: npt.NDArray[np.int64],
    refused: dict[int, tuple[str, str]],
    origin: RecordPlace,
) -> list[Reject]:
    """Return refused spans of a block as rejects, in order; `origin` is where the block begins."""
    spans = ((row, int(starts[row]), int(stops[row])) for row in sorted(refused))
    return [
        Reject(
            RecordPlace(row + 1, start).shifted(origin),
            *refused[row],
            first_bytes(data, start, stop),
        )
        for row, start, stop in spans
    ]
