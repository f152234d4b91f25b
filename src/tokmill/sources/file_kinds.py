"""Recognise by its first bytes a file that is not what its name says, and say what to do."""

from __future__ import annotations

import re
import shlex
from itertools import islice
from typing import TYPE_CHECKING

from tokmill.errors import UsageError
from tokmill.opening import LFS_ADVICE, LFS_POINTER
from tokmill.sources.csv import read_header
from tokmill.sources.csv_readings import check_readings
from tokmill.sources.formats import built_in_suffixes, format_named
from tokmill.sources.json_shapes import no_json_lines, several_objects
from tokmill.sources.streams import first_bytes, open_binary
from tokmill.sources.utf8 import encodings_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokmill.settings.schema import InputSettings
    from tokmill.sources.slices import SourceFile
    from tokmill.sources.utf8 import Encodings

_MOST_FILES = 16
"""Number of files that are opened: opening a million files takes minutes."""

_HEAD_BYTES = 64 << 10

_MAGIC = (
    (b"\x1f\x8b", "gz", "gzip data", "add .gz to its name"),
    (b"\x28\xb5\x2f\xfd", "zst", "zstandard data", "add .zst to its name"),
    (b"\xfd7zXZ\0", "", "xz data", "unpack it with xz -dc < {} > NEW_FILE"),
    (b"BZh", "", "bzip2 data", "unpack it with bunzip2 -c < {} > NEW_FILE"),
    (b"PK\3\4", "", "a zip archive (or .xlsx, .docx)", "unpack it, or save it as text"),
    (b"%PDF-", "", "a PDF", "extract its text first"),
    (LFS_POINTER, "", *LFS_ADVICE),
)
"""First bytes, the compression that has them, its name, advice; {}: the path of the file."""

_CONTROLS = bytes({*range(32)} - {*b"\t\n\f\r\x1b"})
_BINARY = 0.05
"""The share of control characters from which bytes are no text; of random bytes they are 0.11."""

_ARRAY = re.compile(rb"\s*\[\s*\{")
_JSON = re.compile(rb"\s*[\[{]")
_OBJECT = re.compile(rb'\s*(?:\[\s*)?\{\s*"')
_DELIMITERS = (";", "\t", "|")


def check_kind(file: SourceFile, settings: InputSettings) -> Encodings | None:
    """Check that a file holds what its name promises; broken records become rejects.

    Returns:
        the encodings that its text may be in; None for UTF-8.

    Raises:
        UsageError: it is of another kind, or of a kind that can be read in two ways.
        StorageError: it cannot be read.
    """
    row = format_named(file.format)
    if not _is_file(file):
        if file.path == "-" and row.holds == "csv":
            check_readings(file, settings)
        return None
    head, is_whole = first_bytes(file.path, file.compression, _HEAD_BYTES)
    encodings = encodings_of(head) if row.is_utf8 else None
    other = _other_kind(file)
    if not other and row.is_utf8 and not (encodings and encodings.is_wide) and _is_binary(head):
        other = f"holds binary data, expected {file.format}: leave it out of the input"
    if not other and not encodings and row.holds == "csv":
        other = _other_csv(file, settings)
    if not other and not encodings and file.format in ("jsonl", "object"):
        other = _other_json(file, head, is_whole=is_whole)
    if other:
        raise UsageError(f"{file.path}: {other}")
    if row.holds == "csv" and not encodings:
        check_readings(file, settings)
    return encodings


def _is_binary(head: bytes) -> bool:
    n_controls = len(head) - len(head.translate(None, _CONTROLS))
    return n_controls > _BINARY * len(head)


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


def _other_kind(file: SourceFile) -> str:
    """Return that the first bytes are those of another format or compression, and what to do."""
    row = format_named(file.format)
    with open_binary(file.path) as opened:
        head = opened.read(_HEAD_BYTES)
    is_unknown = not (row.is_utf8 or row.magic)  # a binary format: its files may begin with these
    for magic, right, name, advice in () if is_unknown and not file.compression else _magic():
        is_right = bool(right) and right in (file.format, file.compression)
        if head.startswith(magic) and not is_right:
            command = advice.format(shlex.quote(file.path))
            return f"holds {name}, expected {_expected(file)}: {command}"
    if file.compression and _JSON.match(head):
        return f"holds text, expected {file.compression} data: remove the last ending of its name"
    is_json = _JSON if row.holds == "rows" and row.magic else _OBJECT
    if row.holds in ("rows", "csv") and is_json.match(head):
        return f"holds JSON, expected {file.format}: rename it to end in .jsonl or .json"
    return ""


def _other_json(file: SourceFile, head: bytes, *, is_whole: bool) -> str:
    """Return what a file holds instead of objects on lines, or of one object, and what to do."""
    text = head.decode(errors="replace")
    if file.format == "object":
        return several_objects(text, file.path, file.compression)
    if other := no_json_lines(text, file.path, file.compression, is_whole=is_whole):
        return other
    if _ARRAY.match(head):
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
    names, dialect, _ = read_header(file, settings)
    other = next((mark for mark in _DELIMITERS if len(names) == 1 and mark in names[0]), "")
    if not other:
        return ""
    shown = other.replace("\t", "\\t")
    return (
        f"the header has one column, {names[0]!r}: expected columns separated by "
        f"{dialect.delimiter!r}: use --csv-delimiter='{shown}'"
    )
