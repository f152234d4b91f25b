"""Look at the first bytes and records of files before a run: what they hold, and their fields."""

from __future__ import annotations

import re
import shlex
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tokmill.errors import UsageError
from tokmill.fields import FieldSample
from tokmill.sources.blocks import json_record, row_samples
from tokmill.sources.csv import read_header
from tokmill.sources.formats import built_in_suffixes, format_named, open_slice
from tokmill.sources.row_reader import RowBlock
from tokmill.sources.slices import Slice
from tokmill.sources.streams import CHUNK_BYTES, first_bytes, open_binary, peeked_stdin
from tokmill.sources.text import TEXT_COLUMN
from tokmill.sources.utf8 import encodings_of
from tokmill.values import WHOLE_RECORD

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokmill.settings.schema import InputSettings
    from tokmill.sources.formats import Block
    from tokmill.sources.slices import SourceFile
    from tokmill.sources.utf8 import Encodings
    from tokmill.values import Records

_MOST_FILES = 16
"""Number of files that are opened: opening a million files takes minutes."""

_HEAD_BYTES = 64 << 10

_MAGIC = (
    (b"\x1f\x8b", "gz", "gzip data", "add .gz to its name"),
    (b"\x28\xb5\x2f\xfd", "zst", "zstandard data", "add .zst to its name"),
    (b"\xfd7zXZ\0", "", "xz data", "unpack it with xz -dk"),
    (b"BZh", "", "bzip2 data", "unpack it with bunzip2 -k"),
    (b"PK\3\4", "", "a zip archive (or .xlsx, .docx)", "unpack it, or save it as text"),
    (b"%PDF-", "", "a PDF", "extract its text first"),
)
"""First bytes, the compression that has them, its name, advice."""

_CONTROLS = bytes({*range(32)} - {*b"\t\n\f\r\x1b"})
_BINARY = 0.05
"""The share of control characters from which bytes are no text; of random bytes they are 0.11."""

_ARRAY = re.compile(rb"\s*\[\s*\{")
_JSON = re.compile(rb"\s*[\[{]")
_OBJECT = re.compile(rb'\s*(?:\[\s*)?\{\s*"')
_DELIMITERS = (";", "\t", "|")

_MOST_RECORDS = 1000
"""More records are read while a key has had no value: its text may come later."""

_WHOLE = pa.schema([(WHOLE_RECORD, pa.large_string())])


def check_kind(file: SourceFile, settings: InputSettings) -> Encodings | None:
    """Check that a file holds what its name promises; broken records become rejects.

    Returns:
        the encodings that its text may be in; None for UTF-8.

    Raises:
        UsageError: it is of another kind.
        StorageError: it cannot be read.
    """
    if not _is_file(file):
        return None
    head = first_bytes(file.path, file.compression, _HEAD_BYTES)[0]
    encodings = encodings_of(head) if format_named(file.format).is_utf8 else None
    other = _other_kind(file, head)
    if not other and format_named(file.format).holds == "csv" and not encodings:
        other = _other_csv(file, settings)
    n_controls = len(head) - len(head.translate(None, _CONTROLS))
    is_text = format_named(file.format).is_utf8 and not (encodings and encodings.is_wide)
    if not other and is_text and n_controls > _BINARY * len(head):
        other = f"holds binary data, expected {file.format}: leave it out of the input"
    if other:
        raise UsageError(f"{file.path}: {other}")
    return encodings


def check_encoding(files: Sequence[SourceFile]) -> None:
    """Check that not all of the first files have another encoding than UTF-8.

    One such file among others becomes rejects.

    Raises:
        UsageError: all have.
        StorageError: a file cannot be read.
    """
    first = ""
    for file in islice(filter(_is_file, files), _MOST_FILES):
        encodings = None
        if format_named(file.format).is_utf8:
            encodings = encodings_of(first_bytes(file.path, file.compression, _HEAD_BYTES)[0])
        if encodings is None:
            return
        first = first or _convert(file.path, encodings)
    if first:
        raise UsageError(first)


def _convert(path: str, encodings: Encodings) -> str:
    """Return that a file is in another encoding, and how to convert it."""
    name, *others = encodings.names
    command = f"iconv -f {name} -t UTF-8 {shlex.quote(path)} > NEW_FILE"
    look = f"; where NEW_FILE reads wrong, try -f {' or -f '.join(others)}" if others else ""
    return f"{path}: {encodings}, expected UTF-8: convert it with {command}{look}"


def _is_file(file: SourceFile) -> bool:
    return file.n_bytes > 0 and file.path != "-"


def _other_kind(file: SourceFile, text: bytes) -> str:
    """Return that the first bytes are those of another format or compression, and what to do."""
    row = format_named(file.format)
    with open_binary(file.path) as opened:
        head = opened.read(_HEAD_BYTES)
    is_unknown = not (row.is_utf8 or row.magic)  # a binary format: its files may begin with these
    for magic, right, name, advice in () if is_unknown and not file.compression else _magic():
        is_right = bool(right) and right in (file.format, file.compression)
        if head.startswith(magic) and not is_right:
            return f"holds {name}, expected {_expected(file)}: {advice}"
    if file.compression and _JSON.match(head):
        return f"holds text, expected {file.compression} data: remove the last ending of its name"
    is_json = _JSON if row.holds == "rows" and row.magic else _OBJECT
    if row.holds in ("rows", "csv") and is_json.match(head):
        return f"holds JSON, expected {file.format}: rename it to end in .jsonl or .json"
    if file.format == "jsonl" and _ARRAY.match(text):
        return (
            "holds one JSON array, expected an object on each line: rename it to end in .json, or "
            "use --format=array"
        )
    return ""


def _magic() -> Iterator[tuple[bytes, str, str, str]]:
    """Yield first bytes, the format or compression that has them, its name, advice."""
    for suffix, name in built_in_suffixes().items():
        if (row := format_named(name)).magic:
            advice = f"rename it to end in {suffix}, or use --format={name}"
            yield row.magic, name, row.title, advice
    yield from _MAGIC


def _expected(file: SourceFile) -> str:
    return f"{file.format} compressed as {file.compression}" if file.compression else file.format


def _other_csv(file: SourceFile, settings: InputSettings) -> str:
    """Return that the columns of a CSV file seem to be separated by another character, or ''."""
    names, delimiter, _ = read_header(file, settings)
    other = next((mark for mark in _DELIMITERS if len(names) == 1 and mark in names[0]), "")
    if not other:
        return ""
    shown = other.replace("\t", "\\t")
    return (
        f"the header has one column, {names[0]!r}: expected columns separated by "
        f"{delimiter!r}: use --csv-delimiter='{shown}'"
    )


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
