"""Opens a slice for reading, and looks into files before: one table says who reads a format."""

from __future__ import annotations

import io
import json
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tokmill.batch import WHOLE_RECORD, Place
from tokmill.sources.arrow import arrow_schema, open_arrow
from tokmill.sources.blocks import Block, SpanLookup
from tokmill.sources.byte_reader import ByteFormat, ByteReader
from tokmill.sources.csv import CsvBlock, read_header
from tokmill.sources.csv_splitter import CsvSplitter
from tokmill.sources.hub import hub_schema, open_hub
from tokmill.sources.json_array import array_lines
from tokmill.sources.json_lines import JsonBlock
from tokmill.sources.lines import LineSplitter, RawBlock
from tokmill.sources.parquet import open_file, open_parquet
from tokmill.sources.slices import Slice
from tokmill.sources.streams import CHUNK_BYTES, peek_stdin
from tokmill.sources.text import TEXT_COLUMN, TextBlock, TextSplitter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import BinaryIO

    from tokmill.config import InputSettings
    from tokmill.sources.blocks import SliceReader
    from tokmill.sources.slices import SourceFile

_PROBED_RECORDS = 100


def open_slice(
    slice: Slice,  # noqa: A002  it is the word for it
    settings: InputSettings,
    schema: pa.Schema,
    batch_bytes: int,
    start: Place | None = None,
) -> SliceReader:
    """Open a slice, to be read in blocks of about `batch_bytes`; the caller closes the reader.

    `schema`: exactly the columns wanted, text as `string`, lists as `list`. `start`: the place in
    the slice of the first record wanted, as a lookup gave it.

    Raises:
        UsageError: the settings do not fit the file, or a package is missing.
        StorageError: the file cannot be read.
    """
    if slice.file.format == "hub":
        return open_hub(slice, settings, schema, batch_bytes, start)
    if slice.n_bytes and slice.file.format in _ROW_FORMATS:
        open_rows = _ROW_FORMATS[slice.file.format]
        return open_rows(slice, schema, batch_bytes, settings.max_record_bytes, start)
    return _open_bytes(slice, settings, schema, batch_bytes, start)


_ROW_FORMATS = {"parquet": open_parquet, "arrow": open_arrow}


def _open_bytes(
    piece: Slice,
    settings: InputSettings,
    schema: pa.Schema,
    batch_bytes: int,
    start: Place | None = None,
    opened: BinaryIO | None = None,
) -> ByteReader:
    limit = settings.max_record_bytes
    if piece.file.format == "csv":
        header = read_header(piece.file, settings.csv_delimiter, limit)
        start = start or Place(1, header.n_bytes)
        data_format = _csv_format(piece, settings, schema, header.names)
    else:
        # A Parquet or Arrow file of zero bytes comes here too: no lines, no records.
        data_format = _BYTE_FORMATS.get(piece.file.format, _jsonl_format)(settings, schema)
    return ByteReader(piece, data_format, batch_bytes, limit, start, opened=opened)


def _jsonl_format(settings: InputSettings, schema: pa.Schema) -> ByteFormat:
    def make_block(raw: RawBlock, input_bytes: int) -> Block:
        return JsonBlock(raw, schema, settings.max_record_bytes, input_bytes)

    return ByteFormat(LineSplitter(), make_block)


def _array_format(settings: InputSettings, schema: pa.Schema) -> ByteFormat:
    def rewrite(chunks: Iterator[bytes], inside: bool) -> Iterator[bytes]:
        return array_lines(chunks, inside=inside)

    lines = _jsonl_format(settings, schema)
    return ByteFormat(lines.splitter, lines.make_block, rewrite)


def _text_format(settings: InputSettings, schema: pa.Schema) -> ByteFormat:
    separator = settings.text_separator.encode()

    def make_block(raw: RawBlock, input_bytes: int) -> Block:
        return TextBlock(raw, schema, separator, settings.max_record_bytes, input_bytes)

    return ByteFormat(TextSplitter(separator), make_block)


def _csv_format(
    piece: Slice, settings: InputSettings, schema: pa.Schema, names: tuple[str, ...]
) -> ByteFormat:
    delimiter, limit, where = settings.csv_delimiter, settings.max_record_bytes, piece.file.path

    def make_block(raw: RawBlock, input_bytes: int) -> Block:
        return CsvBlock(raw, schema, names, delimiter, limit, input_bytes, where)

    return ByteFormat(CsvSplitter(delimiter), make_block)


_BYTE_FORMATS: dict[str, Callable[[InputSettings, pa.Schema], ByteFormat]] = {
    "jsonl": _jsonl_format,
    "array": _array_format,
    "text": _text_format,
}


def probe(files: Sequence[SourceFile], settings: InputSettings) -> dict[str, pa.DataType]:
    """Give the columns of the first file that has records, with their types, in order.

    For JSON these are the keys of up to 100 records that parse, as they are first seen. Standard
    input is looked at ahead, not used up. Empty if no file has records.

    Raises:
        UsageError, StorageError: a file cannot be read; see `open_slice`.
    """
    for file in files:
        if file.n_bytes or file.format == "hub" or file.path == "-":
            columns = _columns(file, settings)
            if columns:
                return columns
    return {}


def first_records(files: Sequence[SourceFile], settings: InputSettings) -> list[dict[str, Any]]:
    """Give up to 100 whole records of the first file that has some; none if no file has.

    Raises:
        UsageError, StorageError: a file cannot be read; see `open_slice`.
    """
    for file in files:
        if file.n_bytes or file.format == "hub" or file.path == "-":
            records = list(islice(_whole_records(file, settings), _PROBED_RECORDS))
            if records:
                return records
    return []


def _whole_records(file: SourceFile, settings: InputSettings) -> Iterator[dict[str, Any]]:
    if file.format in ("jsonl", "array"):
        yield from _json_records(file, settings)
        return
    schema = pa.schema([(WHOLE_RECORD, pa.large_string())])
    whole = Slice(file, 0, -1, file.n_bytes)
    with open_slice(whole, settings, schema, CHUNK_BYTES) as reader:
        for block in reader.blocks():
            for text in block.parse().batch.column(0).to_pylist():
                yield json.loads(text)


def _columns(file: SourceFile, settings: InputSettings) -> dict[str, pa.DataType]:
    if file.format == "text":
        return {TEXT_COLUMN: pa.string()}
    if file.format == "csv":
        header = read_header(file, settings.csv_delimiter, settings.max_record_bytes)
        return dict.fromkeys(header.names, pa.string())
    if file.format in ("jsonl", "array"):
        return _json_columns(file, settings)
    schema = _table_schema(file, settings)
    return dict(zip(schema.names, schema.types, strict=True))


def _table_schema(file: SourceFile, settings: InputSettings) -> pa.Schema:
    if file.format == "hub":
        return hub_schema(file, settings)
    if file.format == "arrow":
        return arrow_schema(file.path)
    with open_file(file.path) as parquet:
        return parquet.schema_arrow


def _json_columns(file: SourceFile, settings: InputSettings) -> dict[str, pa.DataType]:
    values: dict[str, list[Any]] = {}
    for record in islice(_json_records(file, settings), _PROBED_RECORDS):
        for key, value in record.items():
            values.setdefault(key, []).append(value)
    return {key: _type_of(found) for key, found in values.items()}


def _json_records(file: SourceFile, settings: InputSettings) -> Iterator[dict[str, Any]]:
    """Give the records that the parser takes, as Python sees them."""
    opened = io.BytesIO(peek_stdin(CHUNK_BYTES)) if file.path == "-" else None
    piece = Slice(file, 0, -1, file.n_bytes)
    with _open_bytes(piece, settings, pa.schema([]), CHUNK_BYTES, opened=opened) as reader:
        for block in reader.blocks():
            records = block.parse()
            if not isinstance(records.lookup, SpanLookup):
                return
            for row in range(records.batch.num_rows):
                try:
                    yield json.loads(records.lookup.whole(row))
                except (ValueError, RecursionError):  # taken by Arrow, not by Python: very deep
                    continue


def _type_of(values: list[Any]) -> pa.DataType:
    """Give the type of the values; where they are mixed, of the first that is not null."""
    filled = [value for value in values if value is not None]
    for sample in (filled, filled[:1]):
        try:
            return pa.array(sample).type
        except (pa.ArrowException, OverflowError, UnicodeError):
            continue
    return pa.null()
