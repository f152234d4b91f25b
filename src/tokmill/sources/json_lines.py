"""Parse lines of JSON objects into Arrow columns; all input that is JSON goes through here.

The parser (`json_parser`) gets many lines in one call. Its result is used only if the lines would
give the same result one by one. Otherwise the lines are split (at the bad line, if it names one)
and parsed again, down to single lines. So the result of a line never depends on other lines or on
block limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from tokmill.sources import json_parser
from tokmill.sources.blocks import SpanLookup, first_bytes
from tokmill.sources.field_samples import json_record, json_samples
from tokmill.sources.json_parser import Failure
from tokmill.sources.line_spans import find_lines, trimmed
from tokmill.sources.raw_blocks import too_large_message
from tokmill.sources.record_json import text_batch, wants_record_json
from tokmill.sources.utf8 import invalid_spans, utf8_message
from tokmill.values import Place, Records, Reject

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.sources.line_spans import Lines
    from tokmill.sources.raw_blocks import RawBlock
    from tokmill.sources.utf8 import Bytes

_NO_LIMIT = 1 << 62
_OPEN, _CLOSE = ord("{"), ord("}")


class Parsed(NamedTuple):
    """The records of a block of lines.

    `rows`: (n_rows,) int64, the 0-based line of each row of `batch`. `starts`, `stops`: (n_rows,)
    int64, its bytes without the blanks around it. Places of `rejects` are counted in the block.
    """

    batch: pa.RecordBatch
    rows: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    stops: npt.NDArray[np.int64]
    rejects: list[Reject]


@dataclass(frozen=True, slots=True)
class JsonBlock:
    """A block of JSON Lines."""

    raw: RawBlock
    schema: pa.Schema
    max_record_bytes: int
    input_bytes: int
    samples_head: bool = False

    @property
    def n_bytes(self) -> int:
        """Return the memory that the block takes."""
        return len(self.raw.data)

    def parse(self) -> Records:
        """Return the records of the block."""
        data, origin = self.raw.data, self.raw.origin
        parsed = parse_block(data, self.schema, self.max_record_bytes)
        lookup = SpanLookup(data, parsed.starts, parsed.stops, parsed.rows, origin, json_keys)
        rejects = [shift(reject, origin) for reject in parsed.rejects]
        found = [*rejects, *self.raw.after]
        samples = json_samples(lookup, self.schema, head=self.samples_head)
        return Records(parsed.batch, lookup, found, self.raw.unread, samples)


def shift(reject: Reject, origin: Place) -> Reject:
    """Return a reject with its place shifted by `origin`."""
    return Reject(reject.place.shifted(origin), reject.reason, reject.message, reject.raw)


def json_keys(line: bytes) -> list[str]:
    """Return the top-level keys of a line, in order; none if it is no object."""
    return list(json_record(line) or ())


def parse_lines(
    data: Bytes, schema: pa.Schema, max_record_bytes: int = _NO_LIMIT
) -> tuple[pa.RecordBatch, npt.NDArray[np.int64], list[Reject]]:
    """Return the records of a block of JSON Lines, the 0-based line of each row, and the rejects.

    Each line is one record; blank lines (space, tab, carriage return) are skipped. The batch has
    exactly the columns of `schema`, null where a record lacks the key.
    """
    parsed = parse_block(data, schema, max_record_bytes)
    return parsed.batch, parsed.rows, parsed.rejects


def parse_block(data: Bytes, schema: pa.Schema, max_record_bytes: int = _NO_LIMIT) -> Parsed:
    """Return the records of a block of JSON Lines with their spans, and the rejects, in order."""
    lines = find_lines(data)
    lines, refused = _refuse_unfit(data, lines, max_record_bytes)
    clean = _blanked(data, refused) if refused else data
    wanted = pa.schema([]) if wants_record_json(schema) else schema
    batch, kept, failed = _parse(pa.py_buffer(clean), lines, wanted)
    refused.update(failed)
    rejects = [
        Reject(Place(row + 1, start), why.reason, why.message, first_bytes(data, start, stop))
        for row, (start, stop, why) in sorted(refused.items())
    ]
    kept_lines = lines.pick(kept)
    if wants_record_json(schema):
        batch = text_batch(data, kept_lines.starts, kept_lines.stops)
    return Parsed(batch, *kept_lines, rejects)


_Refused = dict[int, tuple[int, int, Failure]]


def _refuse_unfit(data: Bytes, lines: Lines, limit: int) -> tuple[Lines, _Refused]:
    """Remove blank lines, and refuse lines that must not reach the parser.

    Arrow 26 reads a top-level null as a row, and crashes (segmentation fault) if it is the first
    row. So each line must begin with { and end with }.
    """
    refused: _Refused = {}
    too_large = lines.stops - lines.starts > limit
    for i in np.flatnonzero(too_large):
        row, start, stop = (int(column[i]) for column in lines)
        why = too_large_message(stop - start, limit)
        refused[row] = start, stop, Failure("record too large", why)
    view = np.frombuffer(data, dtype=np.uint8)
    lines = trimmed(data, view, lines.pick(~too_large))
    shaped = (view[lines.starts] == _OPEN) & (view[lines.stops - 1] == _CLOSE)
    no_object = Failure("not an object", "expected one JSON object on the line")
    for i in np.flatnonzero(~shaped):
        row, start, stop = (int(column[i]) for column in lines)
        refused[row] = start, stop, no_object
    lines = lines.pick(shaped)
    bad = invalid_spans(data, lines.starts, lines.stops)
    for n in bad:
        row, start, stop = (int(column[n]) for column in lines)
        why = utf8_message(bytes(memoryview(data)[start:stop]))
        refused[row] = start, stop, Failure("invalid UTF-8", why)
    keep = np.ones(len(lines.rows), dtype=np.bool_)
    keep[bad] = False
    return lines.pick(keep), refused


def _blanked(data: Bytes, refused: _Refused) -> bytearray:
    clean = bytearray(data)
    for start, stop, _ in refused.values():
        clean[start:stop] = b" " * (stop - start)
    return clean


def _parse(
    buffer: pa.Buffer, lines: Lines, schema: pa.Schema
) -> tuple[pa.RecordBatch, npt.NDArray[np.int64], _Refused]:
    """Return the rows of the lines that parse, their indices in `lines`, and the refused lines."""
    nothing = [pa.nulls(0, kind) for kind in schema.types]
    tables = [pa.Table.from_arrays(nothing, schema=schema)]
    kept = [np.zeros(0, dtype=np.int64)]
    refused: _Refused = {}
    pending = [(0, len(lines.rows))] if len(lines.rows) else []
    while pending:
        first, last = pending.pop()
        start, stop = int(lines.starts[first]), int(lines.stops[last - 1])
        run = buffer.slice(start, stop - start)
        outcome = json_parser.PARSER.parse(run, last - first, schema)
        if isinstance(outcome, pa.Table):
            tables.append(outcome)
            kept.append(np.arange(first, last))
        elif last - first == 1:
            refused[int(lines.rows[first])] = start, stop, outcome
        else:
            pending += _split(first, last, outcome.row)
    return _joined(tables), np.concatenate(kept), refused


def _split(first: int, last: int, bad: int) -> list[tuple[int, int]]:
    """Split a run of lines at the bad line, if one is named, else in half; the last part first.

    The named line is only a hint: each part is parsed again.
    """
    if not 0 <= bad < last - first:
        middle = (first + last) // 2
        return [(middle, last), (first, middle)]
    bad += first
    parts = [(bad + 1, last), (bad, bad + 1), (first, bad)]
    return [(start, stop) for start, stop in parts if start < stop]


def _joined(tables: list[pa.Table]) -> pa.RecordBatch:
    if len(tables) == 2 and len(tables[1].to_batches()) == 1:  # no bad line: nothing is copied
        return tables[1].to_batches()[0]
    n_rows = sum(table.num_rows for table in tables)
    if not len(tables[0].schema):
        return pa.RecordBatch.from_struct_array(pa.nulls(n_rows, pa.struct([])))
    # a block is under 2 GiB, so that the text of a column fits one array
    columns = pa.concat_tables(tables).columns
    arrays = [pa.concat_arrays(column.chunks) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=tables[0].schema)
