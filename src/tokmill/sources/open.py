"""Opens a slice for reading: one table says who reads a format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.sources.arrow import open_arrow
from tokmill.sources.byte_reader import ByteFormat, ByteReader
from tokmill.sources.csv import CsvBlock, read_header
from tokmill.sources.csv_quotes import CsvSplitter
from tokmill.sources.hub import open_hub
from tokmill.sources.json_array import array_lines
from tokmill.sources.json_lines import JsonBlock
from tokmill.sources.parquet import open_parquet
from tokmill.sources.raw_blocks import LineSplitter
from tokmill.sources.row_reader import RowReader
from tokmill.sources.text import TextBlock, TextSplitter
from tokmill.values import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

    import pyarrow as pa

    from tokmill.settings.schema import InputSettings
    from tokmill.sources.blocks import Block, SliceReader
    from tokmill.sources.raw_blocks import RawBlock
    from tokmill.sources.slices import Slice, SourceFile


def open_slice(
    slice: Slice,  # noqa: A002  it is the word for it
    settings: InputSettings,
    schema: pa.Schema,
    batch_bytes: int,
    start: Place | None = None,
    *,
    samples_head: bool = False,
) -> SliceReader:
    """Open a slice, to be read in blocks of about `batch_bytes`; the caller closes the reader.

    `schema`: exactly the columns wanted, text as `string`, lists as `list`. `start`: the place in
    the slice of the first record wanted, as a lookup gave it. `samples_head`: among the samples of
    `Records` are those at the head of the slice.

    Raises:
        UsageError: the settings do not fit the file, or a package is missing.
        StorageError: the file cannot be read.
    """
    if slice.file.format == "hub":
        rows = open_hub(slice, settings, schema)
    elif slice.n_bytes and slice.file.format in _ROW_FORMATS:
        rows = _ROW_FORMATS[slice.file.format](slice, schema, batch_bytes)
    else:
        return open_bytes(slice, settings, schema, batch_bytes, start, samples_head=samples_head)
    limits = (batch_bytes, settings.max_record_bytes, start)
    return RowReader(rows, schema, *limits, samples_head=samples_head)


_ROW_FORMATS = {"parquet": open_parquet, "arrow": open_arrow}


def open_bytes(
    piece: Slice,
    settings: InputSettings,
    schema: pa.Schema,
    batch_bytes: int,
    start: Place | None = None,
    opened: BinaryIO | None = None,
    *,
    samples_head: bool = False,
) -> ByteReader:
    """Open a slice of a format that is bytes; see `open_slice`. `opened`: read in its place."""
    limit = settings.max_record_bytes
    if piece.file.format in CSV_FORMATS:
        delimiter = delimiter_of(piece.file, settings)
        header = read_header(piece.file, delimiter, limit)
        start = start or Place(1, header.n_bytes)
        data_format = _csv_format(piece, settings, schema, header.names, samples_head)
    else:
        # A Parquet or Arrow file of zero bytes comes here too: no lines, no records.
        make_format = _BYTE_FORMATS.get(piece.file.format, _jsonl_format)
        data_format = make_format(settings, schema, samples_head)
    return ByteReader(piece, data_format, batch_bytes, limit, start, opened=opened)


def delimiter_of(file: SourceFile, settings: InputSettings) -> str:
    """Return what stands between the columns of a CSV file: a tab in one that ends in .tsv."""
    return "\t" if file.format == "tsv" else settings.csv_delimiter


CSV_FORMATS = ("csv", "tsv")


def _jsonl_format(settings: InputSettings, schema: pa.Schema, samples_head: bool) -> ByteFormat:
    def make_block(raw: RawBlock, input_bytes: int) -> Block:
        return JsonBlock(raw, schema, settings.max_record_bytes, input_bytes, samples_head)

    return ByteFormat(LineSplitter(), make_block)


def _array_format(settings: InputSettings, schema: pa.Schema, samples_head: bool) -> ByteFormat:
    def rewrite(chunks: Iterator[bytes], inside: bool) -> Iterator[bytes]:
        return array_lines(chunks, inside=inside)

    lines = _jsonl_format(settings, schema, samples_head)
    return ByteFormat(lines.splitter, lines.make_block, rewrite)


def _object_format(settings: InputSettings, schema: pa.Schema, samples_head: bool) -> ByteFormat:
    def rewrite(chunks: Iterator[bytes], _inside: bool) -> Iterator[bytes]:
        # JSON has no line break inside a string, so all of them stand between tokens.
        return (chunk.replace(b"\n", b" ") for chunk in chunks)

    lines = _jsonl_format(settings, schema, samples_head)
    return ByteFormat(lines.splitter, lines.make_block, rewrite)


def _text_format(settings: InputSettings, schema: pa.Schema, _samples_head: bool) -> ByteFormat:
    separator = settings.text_separator.encode()

    def make_block(raw: RawBlock, input_bytes: int) -> Block:
        return TextBlock(raw, schema, separator, settings.max_record_bytes, input_bytes)

    return ByteFormat(TextSplitter(separator), make_block)


def _csv_format(
    piece: Slice,
    settings: InputSettings,
    schema: pa.Schema,
    names: tuple[str, ...],
    samples_head: bool,
) -> ByteFormat:
    delimiter, where = delimiter_of(piece.file, settings), piece.file.path
    limit = settings.max_record_bytes

    def make_block(raw: RawBlock, input_bytes: int) -> Block:
        return CsvBlock(raw, schema, names, delimiter, limit, input_bytes, where, samples_head)

    return ByteFormat(CsvSplitter(delimiter), make_block)


_BYTE_FORMATS: dict[str, Callable[[InputSettings, pa.Schema, bool], ByteFormat]] = {
    "jsonl": _jsonl_format,
    "array": _array_format,
    "object": _object_format,
    "text": _text_format,
}
