"""Blocks, which a slice is read as, and the records that they are parsed into.

Reading is cheap and stays on one thread. Parsing is heavy, thread safe and releases the GIL, so
that blocks of one slice can be parsed on several threads and passed on in order.

Records are columns of a schema. With the schema `WHOLE_RECORD` (see `values`), every format yields
one column, the JSON of a record: for recipes that read nested records of different shapes, such as
chats.

Samples are records with all their fields, to report which fields a run leaves out. Every 1,000th
record is sampled, and more at the head of a slice, since many files are short. The choice depends
on places alone, not on blocks or threads. Its cost is not measurable.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tokmill.offsets import offsets_of
from tokmill.rendering.fields import json_in
from tokmill.sources.bad_text import (
    ADVICE,
    Replacer,
    bytes_for_text,
    change_leaves,
    escaped,
    with_halves,
)
from tokmill.sources.exact_json import Number, load_exact
from tokmill.sources.utf8 import Bytes, find_bad, is_utf8, utf8_message
from tokmill.values import RAW_LIMIT_BYTES, WHOLE_RECORD, BlockEnd, RecordPlace, Records, Reject
from tokmill.words import plural

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import BinaryIO

    import numpy.typing as npt

    from tokmill.settings.schema import InputSettings
    from tokmill.values import UnreadInput

    Numbers = npt.NDArray[np.int64]

_LEAST_BYTES = 256 << 10

Samples = list[tuple[int, dict[str, Any]]]
"""Rows in order, each with its record."""

HEAD_ROWS = 32
"""Number of rows sampled from a table: its first ones, since later rows have fewer columns."""

_EVERY = 1000
_HEAD_BYTES = 64 << 10
_EVERY_NEAR, _NEAR_BYTES = 8, 1 << 20
_LONGEST_BYTES = 1 << 20

INVALID_UTF8 = "invalid UTF-8"
"""The reason of a record that has bytes which are no text."""

Refused = dict[int, tuple[str, str]]
"""Reason and message of each record that is no row, by its number."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How a slice is read.

    `schema`: exactly the columns wanted, text as `string`, lists as `list`. `batch_bytes`: size of
    a block. `samples_head`: the samples of `Records` include the head of the slice. `opened`: read
    instead of the file, for a format that is a stream of bytes.
    """

    settings: InputSettings
    schema: pa.Schema
    batch_bytes: int
    samples_head: bool = False
    opened: BinaryIO | None = None


@dataclass(frozen=True, slots=True)
class BytesBlock:
    """Records as bytes, not parsed yet. `origin` shifts places counted in `data` to the slice.

    `input_bytes`: stored bytes that were read for it. `after`: rejects right after `data`, with
    places in the slice. `unread`: input breaks off after them; only the last block has it.
    `renderer`: of its file, where each file has its own; '' where the block is all of it.
    """

    data: bytes
    origin: RecordPlace
    reading: Reading
    parser: Callable[[BytesBlock], Records]
    input_bytes: int = 0
    after: tuple[Reject, ...] = ()
    unread: UnreadInput | None = None
    renderer: str = ""

    @property
    def n_bytes(self) -> int:
        """Return the memory that the block takes."""
        return len(self.data)

    def parse(self) -> Records:
        """Return the records, with places counted from the start of the slice; thread safe."""
        return self.parser(self)


@dataclass(frozen=True, slots=True)
class ParsedBlock:
    """A block that was parsed to look at its records; see `BytesBlock`."""

    records: Records
    n_bytes: int
    input_bytes: int
    renderer: str = ""

    def parse(self) -> Records:
        """Return the records."""
        return self.records


def next_block_bytes(last_bytes: int, batch_bytes: int, left_bytes: int | None = None) -> int:
    """Return the size of the block after one of `last_bytes`, 0 for the first block of a slice.

    The first blocks are smaller, so that all threads have work soon and a wrong file is noticed
    early. The last ones are smaller, so that threads end at nearly the same time: a block is at
    most half of what is left, if that is known. The size of blocks changes no record.
    """
    most = batch_bytes if left_bytes is None else min(batch_bytes, left_bytes // 2)
    return min(batch_bytes, max(_LEAST_BYTES, min(2 * last_bytes, most)))


def too_large(sizes: Numbers, max_record_bytes: int, advice: str = "") -> Refused:
    """Return the reason and message of each record whose size is over the limit."""
    if sizes.max(initial=0) <= max_record_bytes:
        return {}
    return {
        row: (
            "record too large",
            f"{plural(sizes[row], 'byte')}, over max_record_bytes = {max_record_bytes}{advice}",
        )
        for row in np.flatnonzero(sizes > max_record_bytes).tolist()
    }


def not_utf8(data: Bytes, starts: Numbers, stops: Numbers) -> Refused:
    """Return the reason and message of each span of `data`, in order, that is not UTF-8.

    The bytes between the spans do not change the result.
    """
    if is_utf8(data, 0, len(data)):
        return {}

    def check(first: int, last: int) -> int | None:
        return None if is_utf8(data, int(starts[first]), int(stops[last - 1])) else -1

    return {
        row: (INVALID_UTF8, utf8_message(bytes(memoryview(data)[starts[row] : stops[row]])))
        for row in find_bad(len(starts), check)
    }


def span_records(
    blocks: Sequence[BytesBlock],
    before: Sequence[int],
    data: Bytes,
    spans: tuple[Numbers, Numbers],
    batch: pa.RecordBatch,
    rows: Numbers,
    refused: Refused,
    read: Callable[[bytes], dict[str, Any] | None],
    read_kept: Callable[[bytes], dict[str, Any] | None],
) -> Records:
    """Return what blocks that stand one after the other in `data` were parsed into.

    `before`: the bytes before each block. `spans`: where each record starts and stops, (n,) int64.
    `rows`: the records that are the rows of `batch`; the `refused` ones become rejects. `read`
    returns the object that the bytes of a record are, None if Python cannot read it; `read_kept`
    likewise, with numbers as the record writes them.
    """
    starts, stops = spans
    firsts = np.searchsorted(stops, before)
    bounds = [*firsts[1:].tolist(), len(stops)]
    shifts = [
        (block.origin.line + 1 - first, block.origin.byte_offset - n_bytes)
        for block, first, n_bytes in zip(blocks, firsts.tolist(), before, strict=True)
    ]
    counts = np.diff(firsts, append=len(stops))
    places = np.stack((np.arange(len(stops)), starts), axis=1) + np.repeat(shifts, counts, axis=0)

    def first_bytes(number: int) -> bytes:
        start, stop = int(starts[number]), int(stops[number])
        return bytes(memoryview(data)[start : min(stop, start + RAW_LIMIT_BYTES)])

    def text(row: int) -> bytes:
        return bytes(memoryview(data)[starts[rows[row]] : stops[rows[row]]])

    def record(row: int) -> dict[str, Any] | None:
        return read(text(row))

    rejects: list[Reject] = []
    ends: list[BlockEnd] = []
    waiting = sorted(refused, reverse=True)
    for block, bound in zip(blocks, bounds, strict=True):
        while waiting and waiting[-1] < bound:
            number = waiting.pop()
            place = RecordPlace(*places[number].tolist())
            rejects.append(Reject(place, *refused[number], first_bytes(number)))
        rejects += block.after
        ends.append(BlockEnd(int(np.searchsorted(rows, bound)), len(rejects), block.unread))
    is_head = np.repeat([block.reading.samples_head for block in blocks], counts)[rows]
    sampled = sampled_rows(places[rows], (stops - starts)[rows], is_head)
    if wants_record_json(blocks[0].reading.schema):
        sampled = []
    settings = blocks[0].reading.settings
    return Records(
        batch,
        places[rows],
        raw=lambda row: first_bytes(rows[row]),
        keys=lambda row: list(record(row) or ()),
        whole=lambda: as_read((record(row) for row in range(len(rows))), settings),
        rejects=rejects,
        ends=ends,
        samples=[(row, sample) for row in sampled if (sample := record(row)) is not None],
        metadata=metadata_of((read_kept(text(row)) for row in range(len(rows))), settings)
        if settings.keep
        else None,
    )


def as_read(
    records: Iterable[dict[str, Any] | None], settings: InputSettings
) -> Iterator[dict[str, Any] | None]:
    """Yield records as renderers get them: U+FFFD stands for what is no text, if that is set."""
    for record in records:
        yield Replacer().value(record) if settings.replaces_bad_text else record


def metadata_of(
    records: Iterable[Mapping[str, Any] | None], settings: InputSettings
) -> pa.RecordBatch:
    """Return the fields of records that are kept as columns of strings, null where there is none.

    A value that is no string is written as JSON, its numbers as the record writes them. None is a
    record that cannot be read; so is a value that is nested too deeply for Python.
    """
    keep = settings.keep
    columns: list[list[bytes | None]] = [[] for _ in keep]
    for record in records:
        for path, column in zip(keep, columns, strict=True):
            value = value_at(record or {}, path)
            if value is not None and not isinstance(value, str):
                try:
                    value = json_text(value)
                except RecursionError:
                    value = None
            if value is not None and settings.replaces_bad_text:
                value = Replacer().value(value)
            # A record that was accepted may hold half of a surrogate pair here.
            column.append(None if value is None else value.encode("utf-8", "backslashreplace"))
    arrays = [pa.array(column, pa.large_string()) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(keep))


def json_text(value: Any) -> str:
    """Return a value of `load_exact` as JSON, like `json.dumps`, which has no place for numbers."""
    if isinstance(value, Number):
        return value
    parts = []
    if isinstance(value, dict):
        for key, inner in value.items():
            parts.append(f"{json.dumps(key, ensure_ascii=False)}: {json_text(inner)}")
        return "{" + ", ".join(parts) + "}"
    if isinstance(value, list):
        for inner in value:
            parts.append(json_text(inner))  # noqa: PERF401  one frame for each level
        return "[" + ", ".join(parts) + "]"
    return json.dumps(value, ensure_ascii=False)


def value_at(record: Mapping[str, Any], path: str) -> Any:
    """Return the value of a record at a path such as `meta.url`, or None.

    A key with dots in it comes first. An object can be a JSON string, as in CSV.
    """
    if path in record:
        return record[path]
    value: Any = record
    for key in path.split("."):
        value = json_in(value, load_exact)
        value = value.get(key) if isinstance(value, dict) else None
    return value


def join_records(parsed: Sequence[Records]) -> Records:
    """Return the records of several blocks as one batch."""
    if len(parsed) == 1:
        return parsed[0]
    rows = [0, *np.cumsum([len(records.places) for records in parsed]).tolist()]
    rejects = [0, *np.cumsum([len(records.rejects) for records in parsed]).tolist()]

    def found(row: int) -> tuple[Records, int]:
        number = int(np.searchsorted(rows, row, "right")) - 1
        return parsed[number], row - rows[number]

    def raw(row: int) -> bytes:
        records, own = found(row)
        return records.raw(own)

    def keys(row: int) -> Sequence[str]:
        records, own = found(row)
        return records.keys(own)

    replaced = {
        before + row: n
        for before, records in zip(rows, parsed, strict=False)
        for row, n in records.replaced.items()
    }
    doubtful = {
        before + row: why
        for before, records in zip(rows, parsed, strict=False)
        for row, why in records.doubtful.items()
    }
    return Records(
        pa.concat_batches([records.batch for records in parsed]),
        np.concatenate([records.places for records in parsed]),
        raw,
        keys,
        lambda: chain.from_iterable(records.whole() for records in parsed),
        rejects=list(chain.from_iterable(records.rejects for records in parsed)),
        ends=[
            BlockEnd(n_rows, n_rejects, records.unread)
            for n_rows, n_rejects, records in zip(rows[1:], rejects[1:], parsed, strict=True)
        ],
        samples=[
            (before + row, record)
            for before, records in zip(rows, parsed, strict=False)
            for row, record in records.samples
        ],
        metadata=pa.concat_batches([records.metadata for records in parsed])
        if parsed[0].metadata is not None
        else None,
        replaced=replaced,
        doubtful=doubtful,
    )


def one_batch(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of tables as one batch; its texts are under 2 GiB, as those of a block."""
    if len(tables) == 1 and len(batches := tables[0].to_batches()) == 1:  # nothing is copied
        return batches[0]
    columns = pa.concat_tables([schema.empty_table(), *tables]).columns
    n_rows = sum(table.num_rows for table in tables)
    return batch_of([pa.concat_arrays(column.chunks) for column in columns], schema, n_rows)


def batch_of(columns: Sequence[pa.Array], schema: pa.Schema, n_rows: int) -> pa.RecordBatch:
    """Return columns, of which there may be none, as a batch of `n_rows`."""
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.nulls(n_rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def wants_record_json(schema: pa.Schema) -> bool:
    """Return whether a schema asks for records as JSON."""
    return bool(schema.names == [WHOLE_RECORD])


def columns_to_read(
    schema: pa.Schema, names: Sequence[str], keep: Sequence[str] = (), where: str = ""
) -> list[str]:
    """Return the columns of a file, out of `names`, that must be read for a schema.

    `keep`: paths of the fields that are kept, too. `where`: of the settings; such a function sees
    all columns.
    """
    if where or wants_record_json(schema):
        return list(dict.fromkeys(names))
    kept = (name for path in keep for name in (path, path.partition(".")[0]))
    return [name for name in dict.fromkeys([*schema.names, *kept]) if name in names]


def span_texts(data: Bytes, starts: Numbers, stops: Numbers) -> pa.LargeStringArray:
    """Return the spans of `data`, (n,) int64 each, as texts; they are valid UTF-8.

    Not by `pa.array`, which would first copy each text into a Python object.
    """
    offsets = offsets_of(stops - starts)
    view = memoryview(data)
    text = b"".join([view[start:stop] for start, stop in zip(starts, stops, strict=True)])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.large_string(), len(starts), buffers)


def row_batch(
    batch: pa.RecordBatch,
    refused: Refused,
    replaced: Counter[int] | None = None,
    doubtful: Refused | None = None,
) -> pa.RecordBatch:
    """Return the rows of a table as JSON; rows that cannot be are refused, and null.

    With `replaced`, text that is not UTF-8 is replaced, and its characters are added to their row.
    Else with `doubtful`, see `Records`, such rows are no refused ones but doubtful.
    """
    texts: list[str | None] = [None] * batch.num_rows

    def check(first: int, last: int) -> int | None:
        try:
            texts[first:last] = map(_as_json, _rows(batch.slice(first, last - first)))
        except UnicodeDecodeError as error:
            why = INVALID_UTF8, f"cannot be read as text: {error}{ADVICE}"
            if last - first == 1 and replaced is not None:
                texts[first] = _row_by_bytes(batch, first, replaced)
            elif last - first == 1 and doubtful is not None:
                texts[first] = _row_by_bytes(batch, first)
                doubtful[first] = why
            if texts[first] is not None:
                return None
            refused[first] = why
            return -1
        except ValueError as error:
            refused[first] = INVALID_UTF8, f"cannot be read as text: {error}"
            return -1
        return None

    bad = find_bad(batch.num_rows, check)
    for row in refused.keys() - set(bad):  # of several rows, of which others are bad
        del refused[row]
    return whole_batch(pa.array(texts, pa.large_string()))


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return rows with maps as objects; as lists of pairs in a row where a key stands twice."""
    try:
        rows: list[dict[str, Any]] = batch.to_pylist(maps_as_pydicts="strict")
    except KeyError:
        if batch.num_rows == 1:
            return list(batch.to_pylist())
        return [row for i in range(batch.num_rows) for row in _rows(batch.slice(i, 1))]
    return rows


def _row_by_bytes(
    batch: pa.RecordBatch, row: int, replaced: Counter[int] | None = None
) -> str | None:
    """Return a row that is not UTF-8 as JSON, None if it cannot be; see `row_batch`."""
    record: dict[str, Any] = {}
    try:
        for name, column in zip(batch.schema.names, batch.slice(row, 1).columns, strict=True):
            kind = change_leaves(column.type, bytes_for_text)
            record[name] = column.cast(kind).to_pylist()[0]
        if replaced is None:
            return escaped(json.dumps(record, ensure_ascii=False, default=_with_halves))
        replacer = Replacer()
        text = _as_json(replacer.value(record))
    except (ValueError, pa.ArrowException):
        return None
    replaced[row] += replacer.n_replaced
    return text


def _with_halves(value: Any) -> str:
    return with_halves(value) if isinstance(value, bytes) else str(value)


def _as_json(row: dict[str, Any]) -> str:
    try:
        return json.dumps(row, ensure_ascii=False, default=_plain)
    except TypeError:  # a key of a map is neither text nor a number
        return json.dumps(_with_text_keys(row), ensure_ascii=False, default=_plain)


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_with_text_keys(item) for item in value]
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else _plain(key): _with_text_keys(inner)
            for key, inner in value.items()
        }
    return value


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
            samples += [(row, record) for record in _rows(batch.slice(row, 1))]
    return samples


def json_record(
    line: bytes | str, load: Callable[[bytes | str], Any] = json.loads
) -> dict[str, Any] | None:
    """Return the object on a line of JSON; None if it is none, or Python cannot read it.

    What is no text in it is half of a surrogate pair.
    """
    try:
        record = load(with_halves(line) if isinstance(line, bytes) else line)
    except (ValueError, RecursionError):  # Arrow accepts deeper nesting than Python
        return None
    return record if isinstance(record, dict) else None


def exact_record(line: bytes | str) -> dict[str, Any] | None:
    """Return the object on a line of JSON as `json_record`, with numbers as the line has them."""
    return json_record(line, load_exact)


def sampled_rows(places: Numbers, sizes: Numbers, is_head: npt.NDArray[np.bool_]) -> list[int]:
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
