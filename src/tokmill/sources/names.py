"""What the name of a file says of its format, and what the system says of the file."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from stat import S_ISREG

from tokmill.errors import UsageError
from tokmill.sources.slices import SourceFile
from tokmill.sources.streams import BrokenInputError, ByteStream, unreadable

_FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",  # an array, lines or one object: its first bytes tell
    ".csv": "csv",
    ".tsv": "tsv",
    ".txt": "text",
    ".text": "text",
    ".md": "text",
}
BINARY_FORMATS = {".parquet": "parquet", ".arrow": "arrow"}
_COMPRESSIONS = {".gz": "gz", ".zst": "zst"}
_PACKED = {
    ".tar.gz": "tar -xzf", ".tgz": "tar -xzf", ".tar.zst": "tar --zstd -xf", ".tar": "tar -xf",
    ".tar.xz": "tar -xJf", ".tar.bz2": "tar -xjf", ".xz": "xz -dk", ".bz2": "bunzip2 -k",
    ".zip": "unzip", ".7z": "7z x", ".rar": "unrar x", ".lz4": "lz4 -dk",
}  # fmt: skip
"""Endings of what is not read, the longer before the shorter, and what unpacks it."""

_EFFECTIVE = os.access in os.supports_effective_ids
ENDINGS = ", ".join([*_FORMATS, *BINARY_FORMATS])


def classify(name: str) -> tuple[str, str]:
    """Return format ('json' for what its bytes tell) and compression of a file name; '' if none."""
    stem, ending = os.path.splitext(name.lower())  # noqa: PTH122  a tenth of what Path costs
    if ending in BINARY_FORMATS:
        return BINARY_FORMATS[ending], ""
    compression = _COMPRESSIONS.get(ending, "")
    if compression:
        ending = os.path.splitext(stem)[1]  # noqa: PTH122
    return _FORMATS.get(ending, ""), compression


def describe(
    found: Path | os.DirEntry[str], data_format: str, compression: str
) -> tuple[SourceFile, tuple[int, int]]:
    """Describe a file that can be read; return also its device and inode.

    Raises:
        UsageError: it is not there, or no regular file.
        StorageError: it cannot be read.
    """
    name = found.as_posix() if isinstance(found, Path) else found.path.removeprefix("./")
    try:
        stat = found.stat()
        if not S_ISREG(stat.st_mode):
            raise UsageError(f"{name}: not a regular file: pipe it into standard input (-)")
        # Asked, not tried: to open a million files on a network costs minutes.
        if not os.access(name, os.R_OK, effective_ids=_EFFECTIVE):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except FileNotFoundError:
        raise UsageError(f"{name}: no such file or directory") from None
    except OSError as error:
        raise unreadable(name, error) from None
    if data_format == "json":
        data_format = _sniff_json(name, compression)
    file = SourceFile(name, data_format, compression, stat.st_size, stat.st_mtime_ns, "")
    return file, (stat.st_dev, stat.st_ino)


def what_to_do(name: str) -> tuple[str, str]:
    """Return how a file that is not read is called by its ending, and what to do; '' if unknown."""
    lower = name.lower()
    if lower.endswith(".md"):
        return "Markdown file", "to read Markdown, name the files or a glob such as 'DIR/*.md'"
    for ending, advice in _PACKED.items():
        if lower.endswith(ending):
            return f"{ending} file", f"unpack with {advice}"
    return "", ""


def _json_format(head: bytes) -> str:
    """Return what JSON begins so: an array, one object over several lines, or a line each.

    An object over several lines has a key on its second, where lines of objects have a brace.
    """
    if head.startswith(b"["):
        return "array"
    lines = [line.strip() for line in head.split(b"\n", 9)]
    second = next((line for line in lines[1:] if line), b"")
    is_open = lines[0].startswith(b"{") and not lines[0].endswith(b"}")
    return "object" if is_open and second.startswith((b'"', b"}")) else "jsonl"


def _sniff_json(path: str, compression: str) -> str:
    stream = ByteStream(path, compression)
    try:
        for chunk in stream.inside():
            head = chunk.removeprefix(b"\xef\xbb\xbf").lstrip()
            if head:
                return _json_format(head)
    except BrokenInputError:  # reported when it is read
        pass
    finally:
        stream.close()
    return "jsonl"
