"""Parse lines of JSON objects into Arrow columns; all input that is JSON is parsed here.

The parser of Arrow gets many lines in one call. Its result is used only if the lines would give the
same result one by one. Otherwise the lines are split (at the bad line, if it names one) and parsed
again, down to single lines. So the result of a line never depends on other lines or on block
limits. A line that is refused for a field that is not read, or for text that is to be replaced, is
read once more, without that field or text.

The texts, rejects and places of a run depend on the parser, so a plan names it.
"""

from __future__ import annotations

import re
from contextlib import suppress
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.json

from tokmill.sources.bad_text import ADVICE, HALF, Replacer, escaped, with_halves
from tokmill.sources.blocks import (
    INVALID_UTF8,
    json_text,
    not_utf8,
    one_batch,
    span_texts,
    too_large,
    wants_record_json,
    whole_batch,
)
from tokmill.sources.exact_json import Number, load_exact
from tokmill.sources.json_shapes import shape_of
from tokmill.sources.utf8 import find_bad

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from tokmill.sources.utf8 import Bytes

_NO_LIMIT = 1 << 62
_MOST_SHOWN = 1 << 10
"""Bytes of a line that is no object which are looked at for the message."""

_REASONS_OF_ONE_FIELD = ("malformed JSON", INVALID_UTF8)
"""Reasons that may lie in a field that is not read."""

_OPEN, _CLOSE, _NEWLINE, _RETURN = (ord(c) for c in "{}\n\r")
_BLANKS = b" \t\r"
_SCAN_BYTES = 64 << 10  # the scan for newlines runs 7 times faster in chunks that fit the cache

_CHANGED = re.compile(r"Column\((/.*)\) changed from (\w+) to (\w+)", re.DOTALL)
_KINDS = {"string": "text", "array": "a list", "object": "an object", "number": "a number"}


def parser_entry() -> Mapping[str, str]:
    """Return the name and the version of the parser, as a plan has them."""
    return {"name": "pyarrow", "version": pa.__version__}


class Parsed(NamedTuple):
    """The records of a block of lines.

    `rows`: (n_rows,) int64, the 0-based line of each row of `batch`. `line_starts`, `line_stops`:
    (n_lines,) int64, the bytes of each line without the blanks around it. `refused`: reason and
    message of each line that is no record and not blank, by its number. `replaced`: by line, the
    characters that replace what is no text. `doubtful`: by line, see `Records`.
    """

    batch: pa.RecordBatch
    rows: npt.NDArray[np.int64]
    line_starts: npt.NDArray[np.int64]
    line_stops: npt.NDArray[np.int64]
    refused: dict[int, tuple[str, str]]
    replaced: dict[int, int]
    doubtful: dict[int, tuple[str, str]]


class Failure(NamedTuple):
    """Why the result for a run of lines is not used; `row`: the bad line of the run, or -1."""

    reason: str
    message: str
    row: int = -1


def parse_lines(
    data: Bytes,
    schema: pa.Schema,
    max_record_bytes: int = _NO_LIMIT,
    *,
    replaces_bad_text: bool = False,
) -> Parsed:
    """Return the records of a block of JSON Lines with their spans, and the lines refused.

    Each line is one record; blank lines (space, tab, carriage return) are skipped. The batch has
    exactly the columns of `schema`, null where a record lacks the key.

    Arrow 26 reads a top-level null as a row, and crashes (segmentation fault) if it is the first
    row. So each line must begin with { and end with }.
    """
    starts, stops = find_lines(data)
    refused = too_large(stops - starts, max_record_bytes)
    rows = _rows_of_objects(data, starts, stops, refused)
    is_whole = wants_record_json(schema)
    tables, failed = _read_rows(
        _without_refused(data, starts, stops, refused),
        starts[rows],
        stops[rows],
        pa.schema([]) if is_whole else schema,
    )
    refused |= {int(rows[i]): why for i, why in failed.items()}
    rows = np.delete(rows, list(failed))
    if is_whole:
        texts = span_texts(data, starts[rows], stops[rows])
        tables = [pa.Table.from_batches([whole_batch(texts)])]
    replaced: dict[int, int] = {}
    doubtful: dict[int, tuple[str, str]] = {}
    for row in sorted(row for row, why in refused.items() if why[0] in _REASONS_OF_ONE_FIELD):
        line = bytes(memoryview(data)[starts[row] : stops[row]])
        again = _read_again(line, schema, replaces_bad_text=replaces_bad_text)
        refused[row] = _with_advice(refused[row], again, replaces_bad_text=replaces_bad_text)
        if again is None or (again.n_replaced and not (replaces_bad_text or is_whole)):
            continue
        tables.append(again.table)
        rows = np.append(rows, row)
        replaced[row] = again.n_replaced if replaces_bad_text else 0
        if is_whole and not (replaces_bad_text and again.is_text_alone):
            doubtful[row] = refused[row]
        del refused[row]
    batch = one_batch(tables, schema)
    if len(rows) and (np.diff(rows) < 0).any():  # a line that was read again belongs further up
        order = np.argsort(rows)
        batch, rows = batch.take(pa.array(order)), rows[order]
    return Parsed(batch, rows, starts, stops, refused, replaced, doubtful)


def _rows_of_objects(
    data: Bytes,
    starts: npt.NDArray[np.int64],
    stops: npt.NDArray[np.int64],
    refused: dict[int, tuple[str, str]],
) -> npt.NDArray[np.int64]:
    """Return the lines that look like objects of UTF-8; trim their spans, and refuse the others."""
    view = np.frombuffer(data, dtype=np.uint8)
    rows = np.delete(np.arange(len(starts)), list(refused))
    _trim(data, view, starts, stops, rows)
    rows = rows[starts[rows] < stops[rows]]
    shaped = (view[starts[rows]] == _OPEN) & (view[stops[rows] - 1] == _CLOSE)
    for row in rows[~shaped].tolist():
        line = bytes(memoryview(data)[starts[row] : stops[row]])
        refused[row] = "not an object", _no_object(line)
    rows = rows[shaped]
    if bad := not_utf8(data, starts[rows], stops[rows]):
        refused |= {int(rows[i]): why for i, why in bad.items()}
        rows = np.delete(rows, list(bad))
    return rows


def _without_refused(
    data: Bytes,
    starts: npt.NDArray[np.int64],
    stops: npt.NDArray[np.int64],
    refused: Mapping[int, tuple[str, str]],
) -> Bytes:
    """Return the data with blanks in place of refused lines; a copy only if there are any."""
    if not refused:
        return data
    clean = bytearray(data)
    for row in refused:
        clean[starts[row] : stops[row]] = b" " * int(stops[row] - starts[row])
    return clean


def _read_rows(
    data: Bytes,
    starts: npt.NDArray[np.int64],
    stops: npt.NDArray[np.int64],
    schema: pa.Schema,
) -> tuple[list[pa.Table], dict[int, tuple[str, str]]]:
    """Return the tables of n lines, and why some were refused, by their number."""
    buffer, tables = pa.py_buffer(data), list[pa.Table]()
    failures: dict[int, Failure] = {}

    def check(first: int, last: int) -> int | None:
        start, stop = int(starts[first]), int(stops[last - 1])
        outcome = read_json(buffer.slice(start, stop - start), last - first, schema)
        if isinstance(outcome, pa.Table):
            tables.append(outcome)
            return None
        failures[first] = outcome
        return first + outcome.row if outcome.row >= 0 else -1

    failed = find_bad(len(starts), check)
    return tables, {i: failures[i][:2] for i in failed}


def _with_advice(
    why: tuple[str, str], again: _Again | None, *, replaces_bad_text: bool
) -> tuple[str, str]:
    """Return why a line was refused; with the option that replaces its text, if that helps."""
    reason, message = why
    if again is None or not again.is_text_alone:
        message = message.removesuffix(ADVICE)
    elif again.n_replaced and not replaces_bad_text and reason != INVALID_UTF8:
        message += ADVICE  # that of other bytes has it
    return reason, message


class _Again(NamedTuple):
    """A record that was refused and read again: a table of one row.

    `n_replaced`: the characters that are to be replaced in it. `is_text_alone`: nothing else is
    wrong.
    """

    table: pa.Table
    n_replaced: int
    is_text_alone: bool


def _read_again(line: bytes, schema: pa.Schema, *, replaces_bad_text: bool) -> _Again | None:
    """Return a refused record by what is needed of it; None if it is still refused."""
    if wants_record_json(schema):
        return _read_whole(line, replaces_bad_text=replaces_bad_text)
    return _read_needed(line, schema)


def _read_needed(line: bytes, schema: pa.Schema) -> _Again | None:
    """Return a refused record with its text replaced and without the fields that are not read.

    A field that is not read may hold half a character, bytes that are not UTF-8, a number that no
    parser takes, or a key twice; the text of the record is whole then. None if it is still refused.
    """
    replacer = Replacer()
    try:
        record = load_exact(with_halves(line), object_pairs_hook=_unique)
        needed = _needed(record, pa.struct(list(schema)))
        data = json_text(replacer.value(needed)).encode()
    except (ValueError, RecursionError):
        return None
    if not needed:
        return None  # it has none of the fields: what is wrong in it says more
    table = read_json(pa.py_buffer(data), 1, schema)
    if not isinstance(table, pa.Table):
        return None
    return _Again(table, replacer.n_replaced, is_text_alone=True)


def _read_whole(line: bytes, *, replaces_bad_text: bool) -> _Again | None:
    """Return all of a refused record, in which half of a surrogate pair marks what is wrong.

    None if it is no JSON.
    """
    replacer = Replacer()
    try:
        record = load_exact(with_halves(line))
        text = escaped(json_text(_marked(record)))
    except (ValueError, RecursionError):
        return None
    is_accepted = False
    with suppress(ValueError):  # two keys may become the same
        replaced = escaped(json_text(_marked(replacer.value(record))))
        table = read_json(pa.py_buffer(replaced.encode()), 1, pa.schema([]))
        is_accepted = isinstance(table, pa.Table)
        text = replaced if replaces_bad_text else text
    row = whole_batch(pa.array([text], pa.large_string()))
    return _Again(pa.Table.from_batches([row]), replacer.n_replaced, is_accepted)


def _marked(value: Any) -> Any:
    """Return a value of JSON with half of a surrogate pair for numbers that no parser takes."""
    if isinstance(value, Number) and not isfinite(float(value)):
        return HALF
    if isinstance(value, dict):
        return {key: _marked(inner) for key, inner in value.items()}
    return [_marked(inner) for inner in value] if isinstance(value, list) else value


class _Twice(NamedTuple):
    """The values of a key that an object has more than once."""

    key: str


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        found[key] = _Twice(key) if key in found else value
    return found


def _needed(value: Any, kind: pa.DataType) -> Any:
    """Return a value with the fields of a type alone.

    Raises:
        ValueError: an object has one of them twice.
    """
    if isinstance(value, _Twice):
        raise ValueError(f"{value.key} twice")
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return {
            field.name: _needed(value[field.name], field.type)
            for field in kind
            if field.name in value
        }
    if pa.types.is_list(kind) and isinstance(value, list):
        return [_needed(inner, kind.value_type) for inner in value]
    return value


def _no_object(line: bytes) -> str:
    """Return the message for a line that is no object, with what stands there."""
    shape = shape_of(line[:_MOST_SHOWN].decode(errors="replace"))
    return "expected one JSON object on the line" + (f", found {shape.words}" if shape else "")


def find_lines(data: Bytes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return where the lines of a block start and stop, without newlines; blank ones too."""
    view = np.frombuffer(data, dtype=np.uint8)
    newlines = [
        np.flatnonzero(view[start : start + _SCAN_BYTES] == _NEWLINE) + start
        for start in range(0, len(view), _SCAN_BYTES)
    ]
    stops = np.concatenate([*newlines, np.array([len(data)], np.int64)])
    starts = np.concatenate([np.zeros(1, dtype=np.int64), stops[:-1] + 1])
    return starts, stops


def _trim(
    data: Bytes,
    view: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    stops: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
) -> None:
    """Move the bounds of lines past the blanks around them, in place."""
    rows = rows[starts[rows] < stops[rows]]
    stops[rows] -= view[stops[rows] - 1] == _RETURN  # of all lines of a file with CRLF
    rows = rows[starts[rows] < stops[rows]]
    others = (view[starts[rows]] != _OPEN) | (view[stops[rows] - 1] != _CLOSE)
    for row in rows[others].tolist():
        line = bytes(memoryview(data)[starts[row] : stops[row]])
        starts[row] += len(line) - len(line.lstrip(_BLANKS))
        stops[row] = starts[row] + len(line.strip(_BLANKS))


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
                explicit_schema=schema, unexpected_field_behavior="ignore", newlines_in_values=False
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
