"""Check by their first bytes that files hold the format that their names promise."""

from __future__ import annotations

import re
import shlex
from contextlib import closing, suppress
from itertools import islice
from typing import TYPE_CHECKING

from tokmill.errors import UsageError
from tokmill.sources.csv import delimiter_of, read_header
from tokmill.sources.formats import built_in_suffixes, format_named
from tokmill.sources.streams import BrokenInputError, ByteStream, open_binary
from tokmill.sources.utf8 import encoding_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokmill.settings.schema import InputSettings
    from tokmill.sources.slices import SourceFile

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
_DELIMITERS = (";", "\t", "|")


def check_kind(file: SourceFile, settings: InputSettings) -> None:
    """Check that a file holds what its name promises; broken records become rejects.

    Raises:
        UsageError: it is of another kind.
        StorageError: it cannot be read.
    """
    if not _is_file(file):
        return
    head = _head(file)
    encoding = encoding_of(head)
    other = _other_kind(file, head)
    if not other and format_named(file.format).holds == "csv" and not encoding:
        other = _other_csv(file, settings)
    n_controls = len(head) - len(head.translate(None, _CONTROLS))
    is_text = format_named(file.format).is_utf8 and not encoding.startswith("UTF-16")
    if not other and is_text and n_controls > _BINARY * len(head):
        other = f"holds binary data, expected {file.format}: leave it out of the input"
    if other:
        raise UsageError(f"{file.path}: {other}")


def check_encoding(files: Sequence[SourceFile]) -> None:
    """Check that not all of the first files have another encoding than UTF-8.

    One such file among others becomes rejects.

    Raises:
        UsageError: all have.
        StorageError: a file cannot be read.
    """
    looked = list(islice(filter(_is_file, files), _MOST_FILES))
    strange = []
    for file in looked:
        strange.append(other_encoding(file))
        if not strange[-1]:
            return
    if strange:
        raise UsageError(f"{looked[0].path}: {strange[0]}")


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
    if row.holds == "rows" and row.magic and _JSON.match(head):
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
    delimiter = delimiter_of(file, settings)
    names = read_header(file, delimiter, settings.max_record_bytes).names
    other = next((d for d in _DELIMITERS if len(names) == 1 and d in names[0]), "")
    if not other:
        return ""
    shown = other.replace("\t", "\\t")
    return (
        f"the header has one column, {names[0]!r}: expected columns separated by "
        f"{delimiter!r}: use --csv-delimiter='{shown}'"
    )


def other_encoding(file: SourceFile) -> str:
    """Return that a file is in another encoding than UTF-8, and what to do; '' if it is not."""
    if not (_is_file(file) and format_named(file.format).is_utf8):
        return ""
    encoding = encoding_of(_head(file))
    if not encoding:
        return ""
    return (
        f"looks like {encoding}, expected UTF-8: convert it with "
        f"iconv -f {encoding} -t UTF-8 {shlex.quote(file.path)} > NEW_FILE"
    )


def _head(file: SourceFile) -> bytes:
    """Return the first bytes, decompressed, as far as they can be read."""
    # Broken input is reported when it is read.
    with closing(ByteStream(file.path, file.compression)) as stream, suppress(BrokenInputError):
        return next(stream.inside(), b"")[:_HEAD_BYTES]
    return b""
