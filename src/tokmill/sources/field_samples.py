"""Sample records with all their fields, to report which fields a run leaves out.

Every 1,000th record is sampled, and more at the head of a slice, since many files are short. The
choice depends on places alone, not on blocks or threads. Its cost is not measurable.
"""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tokmill.sources.record_json import wants_record_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokmill.sources.blocks import SpanLookup

Samples = list[tuple[int, dict[str, Any]]]
"""Rows in order, each with its record."""

HEAD_ROWS = 32
"""Number of rows sampled from a table: its first ones, since later rows have fewer columns."""

_EVERY = 1000
_HEAD_BYTES = 64 << 10
_EVERY_NEAR, _NEAR_BYTES = 8, 1 << 20
_LONGEST_BYTES = 1 << 20
_LONGEST_CELL = 1 << 30


def json_samples(lookup: SpanLookup, schema: pa.Schema, *, head: bool) -> Samples:
    """Return the sampled rows with their records; none if the run reads records as JSON."""
    rows = _sampled(lookup, head=head)
    if not rows or wants_record_json(schema):
        return []
    pairs = ((row, json_record(lookup.whole(row))) for row in rows)
    return [(row, record) for row, record in pairs if record is not None]


def csv_samples(
    lookup: SpanLookup, schema: pa.Schema, names: Sequence[str], delimiter: str, *, head: bool
) -> Samples:
    """Return the sampled rows with their cells by name; none if the run reads records as JSON."""
    rows = _sampled(lookup, head=head)
    if not rows or wants_record_json(schema):
        return []
    csv.field_size_limit(_LONGEST_CELL)  # else a cell of more than 128 KiB is an error
    return [(row, _cells(lookup.whole(row), names, delimiter)) for row in rows]


def row_samples(batch: pa.RecordBatch) -> Samples:
    """Return the first rows of a table with their records; rows that are not UTF-8 are left out."""
    found: Samples = []
    for row in range(min(batch.num_rows, HEAD_ROWS)):
        try:
            found += [(row, record) for record in batch.slice(row, 1).to_pylist()]
        except (UnicodeDecodeError, ValueError):
            continue
    return found


def json_record(line: bytes) -> dict[str, Any] | None:
    """Return the object on a line of JSON; None if it is none, or Python cannot read it."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):  # Arrow accepts deeper nesting than Python
        return None
    return record if isinstance(record, dict) else None


def _sampled(lookup: SpanLookup, *, head: bool) -> list[int]:
    """Return the sampled rows: every 1,000th.

    With `head`, also all rows in the first 64 KiB of the slice and every 8th in its first MiB,
    unless they are larger than 1 MiB: a file may consist of one large record.
    """
    origin, n_rows = lookup.origin, len(lookup.numbers)
    is_head = head and origin.byte_offset < _NEAR_BYTES
    if not n_rows:
        return []
    before, last = origin.line + int(lookup.numbers[0]), origin.line + int(lookup.numbers[-1]) + 1
    if not is_head and before // _EVERY == last // _EVERY:
        return []  # the usual case; the arrays below would cost as much as a tiny file
    numbers = lookup.numbers + (1 + origin.line)
    chosen = numbers % _EVERY == 0
    if is_head:
        starts = lookup.starts + origin.byte_offset
        is_near = (numbers % _EVERY_NEAR == 0) & (starts < _NEAR_BYTES)
        is_short = lookup.stops - lookup.starts <= _LONGEST_BYTES
        chosen |= (is_near | (starts < _HEAD_BYTES)) & is_short
    rows: list[int] = np.flatnonzero(chosen).tolist()
    return rows


def _cells(data: bytes, names: Sequence[str], delimiter: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    cells = next(csv.reader(io.StringIO(data.decode(), newline=""), delimiter=delimiter), [])
    for name, cell in zip(names, cells, strict=False):
        found.setdefault(name, cell)
    return found
