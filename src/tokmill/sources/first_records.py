"""Read the first records of the input before a run, and the fields that they have."""

from __future__ import annotations

import io
import json
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tokmill.fields import FieldSample
from tokmill.sources.blocks import SpanLookup
from tokmill.sources.field_samples import json_record, row_samples
from tokmill.sources.formats import format_named, open_slice
from tokmill.sources.row_reader import RowBlock
from tokmill.sources.slices import Slice
from tokmill.sources.streams import CHUNK_BYTES, peek_stdin
from tokmill.sources.text import TEXT_COLUMN
from tokmill.values import WHOLE_RECORD

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from typing import BinaryIO

    from tokmill.settings.schema import InputSettings
    from tokmill.sources.slices import SourceFile

_FIRST_RECORDS = 100
_MOST_RECORDS = 1000
"""More records are read while a key has had no value: its text may come later."""

_FIRST_BYTES = 16 << 20
"""Bytes of strings after which reading stops, if the records are long."""

_WHOLE = pa.schema([(WHOLE_RECORD, pa.large_string())])


def sample_fields(
    files: Sequence[SourceFile], settings: InputSettings, nested: Collection[str] = ()
) -> FieldSample:
    """Return the fields of the first records, taken from the first file that has records.

    Reading stops 100 records after a record filled a key for the first time, and after 1,000.
    Standard input is only peeked at. `nested`: see `fields.weigh`.

    Raises:
        UsageError, StorageError: a file cannot be read; see `open_slice`.
    """
    sample = FieldSample(nested)
    for file in _filled(files):
        for record in islice(_records(file, settings), _MOST_RECORDS):
            sample.add(record)
            if sample.n_since_new_key >= _FIRST_RECORDS or sample.n_bytes > _FIRST_BYTES:
                break
        if sample.n_records:
            sample.where = file.path
            break
    return sample


def first_records(files: Sequence[SourceFile], settings: InputSettings) -> list[dict[str, Any]]:
    """Return up to 100 records of the first file that has records.

    Raises:
        UsageError, StorageError: a file cannot be read; see `open_slice`.
    """
    for file in _filled(files):
        records = list(islice(_whole_records(file, settings), _FIRST_RECORDS))
        if records:
            return records
    return []


def _filled(files: Sequence[SourceFile]) -> Iterator[SourceFile]:
    return (file for file in files if file.n_bytes or file.is_stream)


def _records(file: SourceFile, settings: InputSettings) -> Iterator[dict[str, Any]]:
    """Yield records as `sample_fields` needs them; of a table only rows with valid text."""
    holds = format_named(file.format).holds
    if holds == "text":
        yield {TEXT_COLUMN: TEXT_COLUMN}  # the only field, whatever the file holds
    elif holds in ("json", "csv"):
        yield from _whole_records(file, settings)
    else:
        yield from _rows(file, settings)


def _whole_records(file: SourceFile, settings: InputSettings) -> Iterator[dict[str, Any]]:
    if format_named(file.format).holds == "json":
        yield from _json_records(file, settings)
        return
    whole = Slice(file, 0, -1, file.n_bytes)
    opened = _opened(file)
    with open_slice(whole, settings, _WHOLE, CHUNK_BYTES, opened=opened) as reader:
        for block in reader.blocks():
            for text in block.parse().batch.column(0).to_pylist():
                yield json.loads(text)


def _rows(file: SourceFile, settings: InputSettings) -> Iterator[dict[str, Any]]:
    """Yield the first rows of each batch of a table, with all columns."""
    with open_slice(Slice(file, 0, -1, file.n_bytes), settings, _WHOLE, CHUNK_BYTES) as reader:
        for block in reader.blocks():
            if isinstance(block, RowBlock):
                for batch in block.batches:
                    yield from (record for _, record in row_samples(batch))


def _json_records(file: SourceFile, settings: InputSettings) -> Iterator[dict[str, Any]]:
    """Yield the records that the parser accepts, as Python objects."""
    piece, opened = Slice(file, 0, -1, file.n_bytes), _opened(file)
    with open_slice(piece, settings, pa.schema([]), CHUNK_BYTES, opened=opened) as reader:
        for block in reader.blocks():
            records = block.parse()
            if not isinstance(records.lookup, SpanLookup):
                return
            for row in range(records.batch.num_rows):
                record = json_record(records.lookup.whole(row))
                if record is not None:
                    yield record


def _opened(file: SourceFile) -> BinaryIO | None:
    return io.BytesIO(peek_stdin(CHUNK_BYTES)) if file.path == "-" else None
