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
    ".json": "json",  # an array or lines: its first byte tells
    ".csv": "csv",
    ".txt": "text",
    ".text": "text",
    ".md": "text",
}
BINARY_FORMATS = {".parquet": "parquet", ".arrow": "arrow"}
_COMPRESSIONS = {".gz": "gz", ".zst": "zst"}
_EFFECTIVE = os.access in os.supports_effective_ids
ENDINGS = ", ".join([*_FORMATS, *BINARY_FORMATS])


def classify(name: str) -> tuple[str, str]:
    """Return format ('json' for an array or lines) and compression of a file name; '' if none."""
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


def _sniff_json(path: str, compression: str) -> str:
    stream = ByteStream(path, compression)
    try:
        for chunk in stream.inside():
            head = chunk.removeprefix(b"\xef\xbb\xbf").lstrip()
            if head:
                return "array" if head.startswith(b"[") else "jsonl"
    except BrokenInputError:  # reported when it is read
        pass
    finally:
        stream.close()
    return "jsonl"
