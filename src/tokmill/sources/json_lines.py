"""Read lines of JSON objects as Arrow columns; all input that is JSON is parsed here.

The parser of Arrow gets many lines in one call. Its result is used only if the lines would give the
same result one by one. Otherwise the lines are split (at the bad line, if it names one) and parsed
again, down to single lines. So the result of a line never depends on other lines or on block
limits.

The texts, rejects and places of a run depend on the parser, so a plan names it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.json

from tokmill.sources.blocks import SpanLookup, first_bytes, too_large_message
from tokmill.sources.byte_reader import ByteReader, LineSplitter
from tokmill.sources.formats import Format
from tokmill.sources.record_json import json_record, json_samples, text_batch, wants_record_json
from tokmill.sources.utf8 import invalid_spans, utf8_message
from tokmill.values import RecordPlace, Records, Reject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import numpy.typing as npt

    from tokmill.sources.byte_reader import ChangeChunks, RawBlock
    from tokmill.sources.formats import Reading
    from tokmill.sources.slices import Slice
    from tokmill.sources.utf8 import Bytes

_NO_LIMIT = 1 << 62
_OPEN, _CLOSE, _NEWLINE = ord("{"), ord("}"), ord("\n")
_SCAN_BYTES = 64 << 10  # the scan for newlines runs 7 times faster in chunks that fit the cache
_LONG_LINE_BYTES = 1000  # from here on, a search by the C library takes half the time of a scan
_TRIM_ROUNDS = 64  # longer runs of blanks are trimmed line by line

_BLANK = np.zeros(256, dtype=np.bool_)
_BLANK[[0x20, 0x09, 0x0D]] = True

_CHANGED = re.compile(r"Column\((/.*)\) changed from (\w+) to (\w+)", re.DOTALL)
_KINDS = {"string": "text", "array": "a list", "object": "an object", "number": "a number"}


def parser_entry() -> Mapping[str, str]:
    """Return the name and the version of the parser, as a plan has them."""
    return {"name": "pyarrow", "version": pa.__version__}


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
        data = self.raw.data
        return self.records(
            data, parse_lines(data, self.schema, self.max_record_bytes), self.raw.origin
        )

    def records(self, data: bytes, parsed: Parsed, origin: RecordPlace) -> Records:
        """Return the records of lines of `data`; `origin` shifts their places to the slice."""
        lookup = SpanLookup(data, parsed.starts, parsed.stops, parsed.rows, origin, json_keys)
        rejects = [replace(bad, place=bad.place.shifted(origin)) for bad in parsed.rejects]
        samples = json_samples(lookup, self.schema, head=self.samples_head)
        return Records(parsed.batch, lookup, [*rejects, *self.raw.after], self.raw.unread, samples)


def json_opener(
    rewrite: ChangeChunks | None = None, convert: ChangeChunks | None = None
) -> Callable[[Slice, Reading], ByteReader]:
    """Return what opens a slice whose bytes are, or become, JSON Lines; see `ByteReader`."""

    def open_lines(slice_: Slice, reading: Reading) -> ByteReader:
        limit, head = reading.settings.max_record_bytes, reading.samples_head
        return ByteReader(
            slice_,
            reading,
            LineSplitter(),
            lambda raw, input_bytes: JsonBlock(raw, reading.schema, limit, input_bytes, head),
            rewrite=rewrite,
            convert=convert,
        )

    return open_lines


JSONL = Format(json_opener(), (".jsonl", ".ndjson"), has_byte_ranges=True)


def json_keys(line: bytes) -> list[str]:
    """Return the top-level keys of a line, in order; none if it is no object."""
    return list(json_record(line) or ())


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


class Failure(NamedTuple):
    """Why the result for a run of lines is not used; `row`: the bad line of the run, or -1."""

    reason: str
    message: str
    row: int = -1


class Lines(NamedTuple):
    """Lines as spans of bytes, and their 0-based numbers: (n,) int64 each."""

    rows: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    stops: npt.NDArray[np.int64]

    def pick(self, keep: npt.NDArray[np.bool_] | npt.NDArray[np.int64]) -> Lines:
        """Return some of the lines, by a mask or by index."""
        return Lines(self.rows[keep], self.starts[keep], self.stops[keep])


_Refused = dict[int, tuple[int, int, Failure]]
"""The span of each refused line, and why; by its number."""


def parse_lines(data: Bytes, schema: pa.Schema, max_record_bytes: int = _NO_LIMIT) -> Parsed:
    """Return the records of a block of JSON Lines with their spans, and the rejects, in order.

    Each line is one record; blank lines (space, tab, carriage return) are skipped. The batch has
    exactly the columns of `schema`, null where a record lacks the key.
    """
    lines, refused = _fit_lines(data, max_record_bytes)
    clean: Bytes = data
    if refused:
        clean = bytearray(data)
        for start, stop, _ in refused.values():
            clean[start:stop] = b" " * (stop - start)
    is_whole = wants_record_json(schema)
    batch, kept, failed = _parse(pa.py_buffer(clean), lines, pa.schema([]) if is_whole else schema)
    refused.update(failed)
    rejects = [
        Reject(RecordPlace(row + 1, start), why.reason, why.message, first_bytes(data, start, stop))
        for row, (start, stop, why) in sorted(refused.items())
    ]
    if len(kept) < len(lines.rows):
        lines = lines.pick(kept)
    if is_whole:
        batch = text_batch(data, lines.starts, lines.stops)
    return Parsed(batch, *lines, rejects)


def _fit_lines(data: Bytes, limit: int) -> tuple[Lines, _Refused]:
    """Return the lines that may reach the parser, without blank ones, and the refused lines.

    Arrow 26 reads a top-level null as a row, and crashes (segmentation fault) if it is the first
    row. So each line must begin with { and end with }.
    """
    view = np.frombuffer(data, dtype=np.uint8)
    lines = find_lines(data)
    refused: _Refused = {}

    def refuse(indices: Iterable[int], why: Callable[[int, int], Failure]) -> None:
        for i in indices:
            row, start, stop = (int(column[i]) for column in lines)
            refused[row] = start, stop, why(start, stop)

    def too_large(start: int, stop: int) -> Failure:
        return Failure("record too large", too_large_message(stop - start, limit))

    def not_utf8(start: int, stop: int) -> Failure:
        return Failure("invalid UTF-8", utf8_message(bytes(memoryview(data)[start:stop])))

    fits = lines.stops - lines.starts <= limit
    refuse(np.flatnonzero(~fits), too_large)
    lines = trimmed(data, view, lines.pick(fits))
    shaped = (view[lines.starts] == _OPEN) & (view[lines.stops - 1] == _CLOSE)
    no_object = Failure("not an object", "expected one JSON object on the line")
    refuse(np.flatnonzero(~shaped), lambda start, stop: no_object)
    lines = lines.pick(shaped)
    bad = invalid_spans(data, lines.starts, lines.stops)
    refuse(bad, not_utf8)
    return lines.pick(np.delete(np.arange(len(lines.rows)), bad)) if bad else lines, refused


def find_lines(data: Bytes) -> Lines:
    """Return all lines of a block, without their newlines; blank ones too."""
    view = np.frombuffer(data, dtype=np.uint8)
    if data.count(b"\n", 0, _SCAN_BYTES) * _LONG_LINE_BYTES <= min(_SCAN_BYTES, len(data)):
        newlines = [np.fromiter(_search(data), np.int64)]
    else:
        newlines = [
            np.flatnonzero(view[start : start + _SCAN_BYTES] == _NEWLINE) + start
            for start in range(0, len(view), _SCAN_BYTES)
        ]
    stops = np.concatenate([*newlines, np.array([len(data)], np.int64)])
    starts = np.concatenate([np.zeros(1, dtype=np.int64), stops[:-1] + 1])
    return Lines(np.arange(len(stops)), starts, stops)


def _search(data: Bytes) -> Iterator[int]:
    at = -1
    while (at := data.find(b"\n", at + 1)) >= 0:
        yield at


def trimmed(data: Bytes, view: npt.NDArray[np.uint8], lines: Lines) -> Lines:
    """Return the lines that are not blank, without the blanks around them.

    A round removes one blank from all lines at once: CRLF costs one round, not a loop over lines.
    """
    starts, stops = lines.starts.copy(), lines.stops.copy()
    for bounds, step in ((starts, 1), (stops, -1)):
        active = np.flatnonzero(starts < stops)
        for _ in range(_TRIM_ROUNDS):
            # bounds[i] is the first byte of the line, or one past its last
            active = active[_BLANK[view[bounds[active] - (step < 0)]]]
            if not len(active):
                break
            bounds[active] += step
            active = active[starts[active] < stops[active]]
        for i in active.tolist():
            line = bytes(memoryview(data)[starts[i] : stops[i]])
            kept = line.lstrip(b" \t\r") if step > 0 else line.rstrip(b" \t\r")
            bounds[i] += step * (len(line) - len(kept))
    return Lines(lines.rows, starts, stops).pick(starts < stops)


def _parse(
    buffer: pa.Buffer, lines: Lines, schema: pa.Schema
) -> tuple[pa.RecordBatch, npt.NDArray[np.int64], _Refused]:
    """Return the rows of the lines that parse, their indices in `lines`, and the refused lines."""
    tables = [schema.empty_table()]
    kept = [np.zeros(0, dtype=np.int64)]
    refused: _Refused = {}
    pending = [(0, len(lines.rows))] if len(lines.rows) else []
    while pending:
        first, last = pending.pop()
        start, stop = int(lines.starts[first]), int(lines.stops[last - 1])
        outcome = read_json(buffer.slice(start, stop - start), last - first, schema)
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
    """Return the rows of all tables but the first, which is empty, as one batch."""
    if len(tables) == 2 and len(tables[1].to_batches()) == 1:  # no bad line: nothing is copied
        return tables[1].to_batches()[0]
    n_rows = sum(table.num_rows for table in tables)
    if not len(tables[0].schema):
        return pa.RecordBatch.from_struct_array(pa.nulls(n_rows, pa.struct([])))
    # a block is under 2 GiB, so that the text of a column fits one array
    columns = pa.concat_tables(tables).columns
    arrays = [pa.concat_arrays(column.chunks) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=tables[0].schema)


def read_json(lines: pa.Buffer, n_lines: int, schema: pa.Schema) -> pa.Table | Failure:
    """Return the records of lines that begin with {, end with } and are UTF-8, by Arrow's reader.

    The table has exactly the columns of `schema`, and a row for each line. If there are as many
    rows as lines, each line is one object: after the } at the end of a line, the next { can only
    begin a new top-level value (Arrow refuses a newline inside a string), so each line holds at
    least one object. A failure of several lines may be that of any of them. Releases the GIL.
    """
    try:
        table = pa.json.read_json(
            pa.BufferReader(lines),
            read_options=pa.json.ReadOptions(use_threads=False, block_size=lines.size + 1),
            parse_options=pa.json.ParseOptions(
                explicit_schema=schema,
                unexpected_field_behavior="ignore",
                newlines_in_values=False,
            ),
        )
    except pa.ArrowInvalid as error:
        return _failure(str(error))
    except UnicodeDecodeError:  # bytes of the record in Arrow's message
        return Failure("malformed JSON", "cannot be parsed")
    if table.num_rows == n_lines:
        return table
    return Failure("several records on a line", f"{table.num_rows} JSON values on one line")


def _failure(message: str) -> Failure:
    """Return a failure from Arrow's message, which may name the row: a hint for the next run."""
    named = re.search(r" in row (\d+)", message)
    text = message.removeprefix("JSON parse error: ").replace(named[0] if named else "\0", "")
    row = int(named[1]) if named else -1
    if changed := _CHANGED.search(text):
        path, *kinds = changed.groups()
        field = path[1:].replace("/[]", "[]").replace("/", ".")
        wanted, held = (_KINDS.get(kind, kind) for kind in kinds)
        return Failure("wrong type", f"{field}: expected {wanted}, found {held}", row)
    reason = "wrong type" if "ailed to convert" in message else "malformed JSON"
    return Failure(reason, text.strip().rstrip("."), row)
