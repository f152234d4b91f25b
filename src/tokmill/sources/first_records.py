"""Read the first records of files before a run."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tokmill.rendering.fields import FieldSample
from tokmill.sources.blocks import json_record, row_samples
from tokmill.sources.formats import format_named, open_slice
from tokmill.sources.row_reader import RowBlock
from tokmill.sources.slices import Slice
from tokmill.sources.streams import CHUNK_BYTES, peeked_stdin
from tokmill.sources.text import TEXT_COLUMN
from tokmill.values import WHOLE_RECORD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokmill.settings.schema import InputSettings
    from tokmill.sources.formats import Block
    from tokmill.sources.slices import SourceFile
    from tokmill.values import Records

_MOST_RECORDS = 1000
"""More records are read while a key has had no value: its text may come later."""

_WHOLE = pa.schema([(WHOLE_RECORD, pa.large_string())])


def first_of_file(
    file: SourceFile, settings: InputSettings, n_records: int, n_bytes: int, *, whole: bool
) -> list[dict[str, Any]]:
    """Return the first records of a file, as Python objects.

    `whole`: exactly `n_records`, if the file has as many. Else reading stops `n_records` after a
    record filled a key for the first time, after 1,000 records, and after `n_bytes` of strings; of
    plain text only its field is returned, and of a table only rows with valid text. Standard input
    is only peeked at.

    Raises:
        UsageError, StorageError: the file cannot be read; see `open_slice`.
    """
    if not (file.n_bytes or file.is_stream):
        return []
    if whole:
        return list(islice(_whole_records(file, settings), n_records))
    records, fields = [], FieldSample()
    for record in islice(_records(file, settings), _MOST_RECORDS):
        records.append(record)
        fields.add(record)
        if fields.n_since_new_key >= n_records or fields.n_bytes > n_bytes:
            break
    return records


def first_block(file: SourceFile, settings: InputSettings, schema: pa.Schema) -> Records | None:
    """Return the records of a file's first block, with the columns of a schema; None without."""
    for block in _blocks(file, settings, schema):
        return block.parse()
    return None


def _blocks(file: SourceFile, settings: InputSettings, schema: pa.Schema) -> Iterator[Block]:
    """Yield the blocks of a file; of standard input, of its first bytes, which are read again."""
    opened = peeked_stdin() if file.path == "-" else None
    whole = Slice(file, 0, -1, file.n_bytes)
    with open_slice(whole, settings, schema, CHUNK_BYTES, opened=opened) as reader:
        yield from reader.blocks()


def _records(file: SourceFile, settings: InputSettings) -> Iterator[dict[str, Any]]:
    """Yield the records that show which fields hold text; of a table only rows with valid text."""
    holds = format_named(file.format).holds
    if holds == "text":
        yield {TEXT_COLUMN: TEXT_COLUMN}  # the only field, whatever the file holds
    elif holds in ("json", "csv"):
        yield from _whole_records(file, settings)
    else:
        for block in _blocks(file, settings, _WHOLE):
            if isinstance(block, RowBlock):
                for batch in block.batches:
                    yield from (record for _, record in row_samples(batch))


def _whole_records(file: SourceFile, settings: InputSettings) -> Iterator[dict[str, Any]]:
    """Yield the records that the parser accepts, as Python objects."""
    for block in _blocks(file, settings, _WHOLE):
        for text in block.parse().batch.column(0).to_pylist():
            if (record := json_record(text)) is not None:
                yield record
