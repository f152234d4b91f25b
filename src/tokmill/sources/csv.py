"""Parse CSV: records are split first, so that each is parsed or rejected on its own."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from tokmill.errors import UsageError
from tokmill.sources.bad_text import by_row
from tokmill.sources.blocks import columns_to_read, not_utf8, one_batch, span_records, too_large
from tokmill.sources.byte_reader import ByteReader, Cuts
from tokmill.sources.columns import fit_columns
from tokmill.sources.csv_dialect import dialect_of
from tokmill.sources.formats import Format
from tokmill.sources.streams import CHUNK_BYTES, first_bytes
from tokmill.sources.utf8 import find_bad
from tokmill.words import plural

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.settings.schema import InputSettings
    from tokmill.sources.blocks import BytesBlock, Reading, Refused
    from tokmill.sources.csv_dialect import Dialect
    from tokmill.sources.slices import Slice, SourceFile
    from tokmill.values import Records


_NEWLINE, _RETURN = (ord(c) for c in "\n\r")
_NO_BYTE = 256
_START, _FIELD, _QUOTED, _CLOSED = range(4)
"""Where a chunk ends: before or in a field without quotes, in a quoted field, or right behind one,
where a quote more would be an escaped one."""


class Header(NamedTuple):
    """The columns of a CSV file, its dialect, and the bytes before its first record.

    A byte order mark does not count.
    """

    names: tuple[str, ...]
    dialect: Dialect
    n_bytes: int


def read_header(file: SourceFile, settings: InputSettings) -> Header:
    """Read the header of a CSV file; no columns if it has no first line.

    With `csv_header` no, the columns are named by their places.

    Raises:
        UsageError: a mark is not one ASCII character, or the header is not a line of UTF-8, or
            looks like data though `csv_header` does not say that it is a header.
    """
    dialect = dialect_of(file, settings)
    head, is_all = first_bytes(file.path, file.compression)
    splitter = CsvSplitter(dialect)
    n_blank = len(head) - len(head.lstrip(b"\r\n"))
    stop = next((end for end in splitter.ends(head).tolist() if end > n_blank), 0)
    if not stop and len(head) > min(settings.max_record_bytes, CHUNK_BYTES - 1):
        raise UsageError(f"{file.path}: the CSV header is longer than --max-record-bytes or 1 MiB")
    if not stop and (splitter.unfinished or not is_all):
        return Header((), dialect, 0)  # the reader of the records reports it
    stop = stop or len(head)  # a file of one line without a newline, or an empty one
    names = _header_names(head[:stop], dialect, file.path)
    if settings.csv_header == "no":
        return Header(tuple(f"column_{i + 1}" for i in range(len(names))), dialect, 0)
    if settings.csv_header == "auto" and (cell := next(filter(_is_data, names), None)) is not None:
        raise UsageError(
            f"{file.path}: the first line looks like a record: expected the names of columns, "
            f"found {cell[:_LONGEST_NAME]!r}: use --csv-header=no, or =yes if it does name them"
        )
    return Header(names, dialect, stop)


_LONGEST_NAME = 80
"""Characters of the name of a column; a longer cell is data."""

_DATA = re.compile(
    r"[+-]?[\d.,]*\d%?"  # a number
    r"|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T].*)?"  # a date
    r"|[a-z]+://\S+|\S+@\S+\.\S+"  # a URL or an address
    r"|(?=.*\d)[0-9a-f]{16,}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # a hash or a UUID
    r"|(\S+\s+){2,}\S*[.!?…]|.*[。！？；，].*|(\S+\s+){7,}\S+"  # a sentence
)
"""Cells that are no name of a column."""


def _header_names(line: bytes, dialect: Dialect, path: str) -> tuple[str, ...]:
    line = line.strip(b"\r\n")
    if not line:
        return ()
    try:
        line.decode()
        # Not Arrow's parser: it would guess types, and 01 would become 1.
        cells = dialect.cells(line)
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: the CSV header cannot be read: {error}") from None
    return tuple(cell or "" for cell in cells)


def _is_data(cell: str) -> bool:
    text = cell.strip()
    return len(text) > _LONGEST_NAME or "\n" in text or _DATA.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class CsvParser:
    """Parses blocks of CSV records of a file; the header, with `names`, is not among them."""

    names: tuple[str, ...]
    dialect: Dialect
    where: str

    def __call__(self, block: BytesBlock) -> Records:
        """Return the records of a block."""
        data, schema = block.data, block.reading.schema
        limit = block.reading.settings.max_record_bytes
        ends = CsvSplitter(self.dialect).ends(data)
        starts = np.concatenate([np.zeros(1, dtype=np.int64), ends])
        stops = np.append(ends - 1, len(data))
        filled = starts < stops
        starts, stops = starts[filled], stops[filled]
        bad_bytes = not_utf8(data, starts, stops)  # refused if a cell that is read has them
        refused = too_large(stops - starts, limit)
        for number, why in bad_bytes.items():  # Arrow hands rows of other lengths over as text
            record = bytes(data[starts[number] : stops[number]])
            if number not in refused and len(self.dialect.cells(record)) != len(self.names):
                refused[number] = why
        good = np.delete(np.arange(len(starts)), sorted(refused))
        cells, parsed = self._cells(schema, data, starts, stops, good, refused)
        fitted = fit_columns(cells, schema, block.reading.settings, self.where)
        for row, why in fitted.refused.items():
            number = int(parsed[row])
            refused[number] = bad_bytes.get(number, why)
        rows = parsed[fitted.rows]
        spans = starts, stops
        records = span_records(
            [block], [0], data, spans, fitted.batch, rows, refused, self._record, self._record
        )
        doubtful = {
            row: bad_bytes.get(int(parsed[row]), why) for row, why in fitted.doubtful.items()
        }
        return replace(
            records,
            replaced=by_row(fitted.replaced, fitted.rows),
            doubtful=by_row(doubtful, fitted.rows),
        )

    def _record(self, line: bytes) -> dict[str, Any]:
        """Return the cells of a record by name; the first of several with one name counts."""
        named: dict[str, Any] = {}
        for name, cell in zip(self.names, self.dialect.cells(line), strict=False):
            named.setdefault(name, cell)
        return named

    def _cells(
        self,
        schema: pa.Schema,
        data: bytes,
        starts: npt.NDArray[np.int64],
        stops: npt.NDArray[np.int64],
        good: npt.NDArray[np.int64],
        refused: Refused,
    ) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
        """Parse the good records; return their cells, and the record number of each row.

        As for JSON, Arrow's result is used only if it has every record; else the run is split.
        Records that Arrow refuses are added to `refused`.
        """
        wanted = columns_to_read(schema, self.names) or list(self.names[:1])  # any, for its rows
        tables: list[pa.Table] = []
        view = memoryview(data)

        def check(first: int, last: int) -> int | None:
            run = good[first:last]
            # Join the spans if records between them were left out.
            spans = [(starts[run[0]], stops[run[-1]])]
            if int(run[-1] - run[0]) + 1 != len(run):
                spans = list(zip(starts[run], stops[run], strict=True))
            lines = b"\n".join(bytes(view[start:stop]) for start, stop in spans)
            table, failed = self._parse(self.dialect.with_doubled_escapes(lines), wanted)
            if table is None or table.num_rows + len(failed) != len(run):
                return -1
            tables.append(table)
            refused.update({int(run[row]): why for row, why in failed.items()})
            return None

        bad = find_bad(len(good), check)
        refused.update(dict.fromkeys(good[bad].tolist(), ("malformed CSV", "cannot be parsed")))
        cells = one_batch(tables, pa.schema([(name, pa.string()) for name in wanted]))
        return cells, np.setdiff1d(good, list(refused))

    def _parse(
        self, data: bytes, wanted: list[str]
    ) -> tuple[pa.Table | None, dict[int, tuple[str, str]]]:
        """Return the cells of a run of records, None if it fails, and the rows left out."""
        import pyarrow.csv as pa_csv

        failed: dict[int, tuple[str, str]] = {}

        def refuse(row: pa_csv.InvalidRow) -> str:
            message = (
                f"expected {plural(row.expected_columns, 'column')}, found {row.actual_columns}"
            )
            failed[row.number - 1] = "malformed CSV", message
            return "skip"

        # Columns are numbered, since a header may repeat a name; the first one is used.
        columns = [str(i) for i in range(len(self.names))]
        picked = [str(self.names.index(name)) for name in wanted]
        null = self.dialect.null
        try:
            table = pa_csv.read_csv(
                pa.BufferReader(data),
                pa_csv.ReadOptions(
                    use_threads=False, column_names=columns, block_size=len(data) + 1
                ),
                pa_csv.ParseOptions(
                    delimiter=self.dialect.delimiter,
                    quote_char=self.dialect.quote or False,
                    escape_char=self.dialect.escape or False,
                    newlines_in_values=True,
                    invalid_row_handler=refuse,
                ),
                pa_csv.ConvertOptions(
                    check_utf8=False,  # checked before
                    column_types=dict.fromkeys(columns, pa.string()),
                    null_values=[null] if null else None,
                    strings_can_be_null=bool(null),
                    quoted_strings_can_be_null=False,
                    include_columns=picked,
                ),
            )
        except pa.ArrowInvalid:
            return None, {}
        return table.rename_columns(wanted), failed


class CsvSplitter:
    r"""A record ends at \n or \r outside quotes, as in Arrow's parser; empty ones do not count.

    A quote opens a quoted field only at the start of the field; two inside it are an escaped one.
    What stands behind an escape, quoted or not, is no mark. `n_columns`: of a whole record.
    """

    mark_bytes = 1
    advice = ""

    def __init__(self, dialect: Dialect, n_columns: int = 0) -> None:
        self._dialect, self._n_columns = dialect, n_columns
        self._before = f"{dialect.delimiter}\r\n".encode()
        quote = dialect.quote.encode()
        self._quote = ord(quote) if quote else _NO_BYTE
        mark = re.escape(quote) or b"(?!)"
        rest = rb"(?:[^%b]++|%b%b)*+(%b|\Z)" % (mark, mark, mark, mark)
        self._rest = re.compile(rest)
        opens = rb"%b(?<![^%b]%b)" % (mark, re.escape(self._before), mark)
        self._quoted = re.compile(opens + rest)
        self._is_plain = np.isin(np.arange(256), list(self._before + quote))
        """By byte: whether a quote behind it opens a field, or may escape a quote."""
        self._state = _START
        self._is_escaped = False  # the next byte
        self._open_bytes = 0  # of the record that the chunk before left open

    def feed(self, chunk: bytes) -> Cuts:
        """Return where records end in the next chunk."""
        ends = self.ends(chunk)
        if not len(ends):
            self._open_bytes += len(chunk)
            return Cuts(0, 0, 0)
        filled = np.diff(ends, prepend=-self._open_bytes) > 1
        self._open_bytes = len(chunk) - int(ends[-1])
        return Cuts(int(ends[0]), int(ends[-1]), int(np.count_nonzero(filled)))

    @property
    def unfinished(self) -> str:
        """Return an error if a quote is open, else ''."""
        return (
            "a quoted field is not closed before the end of the file: close it, or use "
            "--csv-quote=none, which makes quotes text"
            if self._state == _QUOTED
            else ""
        )

    def cut_off(self, record: bytes) -> str:
        """Return why the last record was cut off: it has too few columns."""
        if not record.strip(b"\r\n"):
            return ""
        n_columns = len(self._dialect.cells(record))
        if n_columns >= self._n_columns:
            return ""
        return (
            f"the last record was cut off: {n_columns} of {plural(self._n_columns, 'column')}, and "
            "no newline behind it"
        )

    def ends(self, chunk: bytes) -> npt.NDArray[np.int64]:
        """Return the positions after the end marks of records in the next chunk: (n,) int64."""
        if not chunk:
            return np.zeros(0, dtype=np.int64)
        if self._dialect.escape:
            chunk = self._without_escaped(chunk)
        view = np.frombuffer(chunk, dtype=np.uint8)
        bounds, is_quoted = np.flatnonzero(view == self._quote), self._state == _QUOTED
        # If every second quote opens a field or escapes a quote, an odd count means "inside". A
        # search makes an object of each field: 9 MB/s with a word in each, and this 550 (2026-11).
        opening = bounds[int(is_quoted) :: 2]
        is_plain = self._is_plain[view[opening - 1]]
        is_plain[opening == 0] = self._state != _FIELD
        if is_plain.all():
            at_end = _CLOSED if chunk[-1] == self._quote else self._state_after(chunk)
            self._state = _QUOTED if (len(bounds) + is_quoted) % 2 else at_end
        else:
            bounds, is_quoted = self._searched(chunk), False
        breaks = np.flatnonzero((view == _NEWLINE) | (view == _RETURN))
        before = np.searchsorted(bounds, breaks, "right") + is_quoted
        ends: npt.NDArray[np.int64] = breaks[before % 2 == 0] + 1
        return ends

    def _without_escaped(self, chunk: bytes) -> bytes:
        """Return a chunk of the same length, with text for each mark behind an escape."""
        dialect = self._dialect
        marks = f"{dialect.escape}{dialect.quote}{dialect.delimiter}\r\n"
        text = next(letter for letter in b"wxyz" if chr(letter) not in marks)
        if self._is_escaped:
            chunk = bytes([text]) + chunk[1:]
        escape = dialect.escape.encode()
        for mark in marks.encode():  # the escape first: two of them are none
            chunk = chunk.replace(escape + bytes([mark]), bytes([text, text]))
        self._is_escaped = chunk.endswith(escape)
        return chunk

    def _searched(self, chunk: bytes) -> npt.NDArray[np.int64]:
        """Return where quoted fields of a chunk begin and end, in turn, wherever quotes stand."""
        matches: list[re.Match[bytes]] = []
        is_quote = chunk[0] == self._quote
        if self._state == _QUOTED or (self._state == _CLOSED and is_quote):
            matches += filter(None, [self._rest.match(chunk, int(self._state == _CLOSED))])
        start = matches[0].end() if matches else int(self._state == _FIELD and is_quote)
        matches += self._quoted.finditer(chunk, start)
        if matches and matches[-1].end() == len(chunk):
            self._state = _CLOSED if matches[-1][1] else _QUOTED
        else:
            self._state = self._state_after(chunk)
        return np.array([match.span() for match in matches], dtype=np.int64).ravel()

    def _state_after(self, chunk: bytes) -> int:
        """Return the state behind a chunk that ends outside quoted fields."""
        return _START if chunk[-1] in self._before else _FIELD


def _open_csv(slice_: Slice, reading: Reading) -> ByteReader:
    names, dialect, n_bytes = read_header(slice_.file, reading.settings)
    parser = CsvParser(names, dialect, slice_.file.path)
    splitter = CsvSplitter(dialect, len(names))
    return ByteReader(slice_, reading, splitter, parser, skip=n_bytes)


CSV = Format(_open_csv, (".csv",), "csv")
TSV = Format(_open_csv, (".tsv",), "csv")
