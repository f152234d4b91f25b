"""Records as JSON text or as Python objects, whatever their format.

With the schema `WHOLE_RECORD` (see `values`), every format yields one column, the JSON of a record:
for recipes that read nested records of different shapes, such as chats.

Samples are records with all their fields, to report which fields a run leaves out. Every 1,000th
record is sampled, and more at the head of a slice, since many files are short. The choice depends
on places alone, not on blocks or threads. Its cost is not measurable.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tokmill.offsets import offsets_of
from tokmill.sources.utf8 import find_bad
from tokmill.values import WHOLE_RECORD

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tokmill.sources.utf8 import Bytes

Samples = list[tuple[int, dict[str, Any]]]
"""Rows in order, each with its record."""

HEAD_ROWS = 32
"""Number of rows sampled from a table: its first ones, since later rows have fewer columns."""

_EVERY = 1000
_HEAD_BYTES = 64 << 10
_EVERY_NEAR, _NEAR_BYTES = 8, 1 << 20
_LONGEST_BYTES = 1 << 20


def wants_record_json(schema: pa.Schema) -> bool:
    """Return whether a schema asks for records as JSON."""
    return bool(schema.names == [WHOLE_RECORD])


def columns_to_read(schema: pa.Schema, names: Sequence[str]) -> list[str]:
    """Return the columns of a file, out of `names`, that must be read for a schema."""
    if wants_record_json(schema):
        return list(dict.fromkeys(names))
    return [name for name in dict.fromkeys(schema.names) if name in names]


def span_texts(
    data: Bytes, starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]
) -> pa.LargeStringArray:
    """Return the spans of `data`, (n,) int64 each, as texts; they are valid UTF-8.

    Not by `pa.array`, which would first copy each text into a Python object.
    """
    offsets = offsets_of(stops - starts)
    view = memoryview(data)
    text = b"".join([view[start:stop] for start, stop in zip(starts, stops, strict=True)])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.large_string(), len(starts), buffers)


def row_batch(batch: pa.RecordBatch, refused: dict[int, tuple[str, str]]) -> pa.RecordBatch:
    """Return the rows of a table as JSON; rows that cannot be are refused, and null."""
    texts: list[str | None] = [None] * batch.num_rows

    def check(first: int, last: int) -> int | None:
        try:
            texts[first:last] = map(_as_json, batch.slice(first, last - first).to_pylist())
        except (UnicodeDecodeError, ValueError) as error:
            refused[first] = "invalid UTF-8", f"cannot be read as text: {error}"
            return -1
        return None

    bad = find_bad(batch.num_rows, check)
    for row in refused.keys() - set(bad):  # of several rows, of which others are bad
        del refused[row]
    return whole_batch(pa.array(texts, pa.large_string()))


def _as_json(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    """Return a value that JSON lacks as text: bytes are decoded, dates and decimals written."""
    if isinstance(value, bytes):
        return value.decode()
    return str(value)


def whole_batch(text: pa.LargeStringArray) -> pa.RecordBatch:
    """Return the JSON of records as the column that stands for all others."""
    return pa.RecordBatch.from_arrays([text], names=[WHOLE_RECORD])


def row_samples(batch: pa.RecordBatch) -> Samples:
    """Return the first rows of a table with their records; rows that are not UTF-8 are left out."""
    samples: Samples = []
    for row in range(min(batch.num_rows, HEAD_ROWS)):
        with suppress(UnicodeDecodeError, ValueError):
            samples += [(row, record) for record in batch.slice(row, 1).to_pylist()]
    return samples


def json_record(line: bytes | str) -> dict[str, Any] | None:
    """Return the object on a line of JSON; None if it is none, or Python cannot read it."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):  # Arrow accepts deeper nesting than Python
        return None
    return record if isinstance(record, dict) else None


def sampled_rows(
    places: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], is_head: npt.NDArray[np.bool_]
) -> list[int]:
    """Return the sampled rows, of which `places` and `sizes` are given: every 1,000th.

    Where `is_head`, also all rows in the first 64 KiB of the slice and every 8th in its first MiB,
    unless they are larger than 1 MiB: a file may consist of one large record.
    """
    numbers, starts = places.T
    is_near = (numbers % _EVERY_NEAR == 0) & (starts < _NEAR_BYTES)
    is_near |= starts < _HEAD_BYTES
    is_near &= is_head & (sizes <= _LONGEST_BYTES)
    rows: list[int] = np.flatnonzero((numbers % _EVERY == 0) | is_near).tolist()
    return rows
