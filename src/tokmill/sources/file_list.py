"""The list of input files: format, size and time of each, and each of them once.

A file is listed once even if several links, globs or directories reach it.

A file that the user names several times is read each time. A file that a directory, a glob or a
link reaches again is read once: its own name counts before a link, an earlier place before a later.
"""

from __future__ import annotations

import os
import re
from array import array
from enum import Enum, IntEnum
from fnmatch import fnmatchcase
from json import JSONDecoder
from typing import TYPE_CHECKING

import numpy as np

from tokmill.errors import UsageError
from tokmill.sources.blocks import json_record
from tokmill.sources.formats import built_in_suffixes, format_named, outside_suffixes
from tokmill.sources.slices import SourceFile
from tokmill.sources.streams import first_bytes
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ANY_DEPTH = "**"
TEXT = "text"
JSON = "json"
"""A file that ends in .json: its first bytes show whether it is an array, lines or one object."""

_COMPRESSIONS = {".gz": "gz", ".gzip": "gz", ".zst": "zst", ".zstd": "zst"}
_PACKED = {
    ".tar.gz": "tar -xzf", ".tgz": "tar -xzf", ".tar.zst": "tar --zstd -xf", ".tar": "tar -xf",
    ".tar.xz": "tar -xJf", ".tar.bz2": "tar -xjf", ".xz": "xz -dk", ".bz2": "bunzip2 -k",
    ".zip": "unzip", ".7z": "7z x", ".rar": "unrar x", ".lz4": "lz4 -dk",
}  # fmt: skip
"""Endings of packed files, which are not read, and the command that unpacks them; longer first."""

_PYTHON_READS = "read them in Python and write their text as JSON Lines or Parquet"
_OTHER_KINDS = {
    (".bin", ".idx", ".ds"): "files of tokens are read by tokmill import",
    (
        ".npy",
        ".npz",
        ".orc",
        ".avro",
        ".tfrecord",
        ".tfrecords",
        ".h5",
        ".hdf5",
        ".sas7bdat",
    ): _PYTHON_READS,
    (".feather",): "name its format with --format=arrow",
    (".db", ".sqlite", ".sqlite3", ".duckdb"): "export the table as CSV or Parquet",
    (".warc", ".wet", ".wat"): "extract the text first, with warcio or datatrove",
    (".xlsx", ".xls", ".ods"): "save it as CSV",
    (".pdf", ".doc", ".docx", ".epub", ".mobi", ".odt", ".rtf"): "extract its text first",
    (".html", ".htm", ".xml", ".xhtml"): "extract its text first",
    (".pkl", ".pickle", ".pt", ".pth"): "tokmill loads no pickle: write the records as JSON Lines",
    (".safetensors", ".ckpt", ".gguf", ".onnx"): "a model, not a corpus",
    (".yaml", ".yml", ".toml", ".ini"): "settings, not a corpus; a file of settings is --config",
    (".py", ".ipynb"): "a program, not a corpus; to read code as text, --format=text",
}
"""Endings of files that are not read, compressed or not, and what to do with them."""

_DESCRIBES = re.compile(
    r"(licen[cs]e|copying|notice|readme|changelog|authors|contributors|citation|attribution)s?"
    r"(?![a-z]).*"
    r"|(md5|sha1|sha256|sha512|check)(sums?)?(?![a-z]).*|.*\.(md5|sha1|sha256|sha512)"
    r"|(urls?|links|paths|files?|sources|manifest|index|requirements|robots)([-_ ]?list)?"
)
"""Names, in lower case and without their ending, of text files that are no documents where they
stand beside records: licences, readmes, checksums, lists of files and URLs."""

_HEAD_BYTES = 64 << 10
_LINES = 16
"""Lines of a text file that must be JSON objects, if it has as many, to make it JSON Lines."""

_MOST_NAMED = 3


class Way(IntEnum):
    """How a file was reached; if a file is reached in several ways, the lowest value is used."""

    NAMED = 0
    LISTED = 1
    LINKED = 2


class Ignored(Enum):
    """Reason why a path is ignored: its name in the singular and the plural."""

    UNKNOWN = ("file of unknown ending", "files of unknown ending")
    DATASET = ("dataset that tokmill made", "datasets that tokmill made")
    NOWHERE = ("link that leads nowhere", "links that lead nowhere")
    LOOP = ("link to a directory read already", "links to directories read already")
    SPECIAL = ("pipe, socket or device", "pipes, sockets or devices")
    BESIDE = ("file that describes the records beside it", "files that describe records")
    AGAIN = ("file reached a second time", "files reached a second time")


class FileList:
    """Collects files in order; needs 9 bytes per file besides the files themselves.

    Files are known again by a hash of 64 bits of what identifies them.
    """

    def __init__(self) -> None:
        self.files: list[SourceFile] = []
        self._keys = array("q")
        self._ways = bytearray()
        self._ignored: dict[Ignored, list[str]] = {}
        self._of_records: list[str] = []
        self._beside: list[str] = []

    def add(self, file: SourceFile, way: Way, identity: tuple[object, ...]) -> None:
        """Add a file; `identity` is a key that only the same file has."""
        self.files.append(file)
        self._keys.append(hash(identity))
        self._ways.append(way)

    def ignore(self, path: str, why: Ignored) -> None:
        """Record a path that is ignored."""
        self._ignored.setdefault(why, []).append(path)

    def holds_records(self, path: str) -> None:
        """Record a file with the name of a text that holds records of JSON."""
        self._of_records.append(path)

    def notes(self) -> list[str]:
        """Return a line for each way in which paths are not read as their names say."""
        lines: list[str] = []
        if self._of_records:
            lines.append(
                f"read as records: {plural(len(self._of_records), 'file')} named as text, of JSON "
                f"objects ({_some(self._of_records)}): --format=text reads the lines as text"
            )
        if self._beside:
            lines.append(
                f"read as documents: {plural(len(self._beside), 'text file')} beside records "
                f"({_some(self._beside)}): to leave text out, name a glob of the records alone"
            )
        for why in Ignored:
            if paths := sorted(self._ignored.get(why, ())):
                lines += _by_ending(paths) if why is Ignored.UNKNOWN else [_note(paths, why.value)]
        return lines

    def remove_descriptions(self) -> None:
        """Remove text files beside records that only describe them, by their names.

        A file is beside records if its folder holds some, at any depth. Others that are beside are
        documents, and noted. A file that is named is a document in any case.
        """
        folders = {
            folder
            for file in self.files
            if file.format != TEXT and not file.is_stream
            for folder in _folders_above(file.path)
        }
        kept: list[int] = []
        for i, file in enumerate(self.files):
            is_beside = file.format == TEXT and file.path.rpartition("/")[0] in folders
            if not is_beside or self._ways[i] == Way.NAMED:
                kept.append(i)
            elif _DESCRIBES.fullmatch(_name_of(file.path)):
                self.ignore(file.path, Ignored.BESIDE)
            else:
                self._beside.append(file.path)
                kept.append(i)
        self.files = [self.files[i] for i in kept]
        self._keys = array("q", [self._keys[i] for i in kept])
        self._ways = bytearray(self._ways[i] for i in kept)

    def remove_repeated(self) -> list[str]:
        """Remove files that were reached again; return a warning if the user named some twice."""
        _, number, counts = np.unique(self._keys, return_inverse=True, return_counts=True)
        same: dict[int, list[int]] = {}
        for i in np.flatnonzero(counts[number] > 1).tolist():
            same.setdefault(self._keys[i], []).append(i)
        named: list[int] = []
        again: set[int] = set()
        for indices in same.values():
            best = min(self._ways[i] for i in indices)
            kept = [i for i in indices if self._ways[i] == best]
            if best == Way.NAMED:
                named += kept[:1] if len(kept) > 1 else []
            else:
                kept = kept[:1]
            again.update(set(indices) - set(kept))
        for i in sorted(again):
            self.ignore(self.files[i].path, Ignored.AGAIN)
        paths = [self.files[i].path for i in sorted(named)]
        self.files = [file for i, file in enumerate(self.files) if i not in again]
        if not named:
            return []
        words = "a file is" if len(paths) == 1 else f"{plural(len(paths), 'file')} are"
        return [f"{words} named more than once, and read each time ({_some(paths)})"]


def _folders_above(path: str) -> Iterator[str]:
    """Yield all folders in which a file stands, the nearest first."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path
    yield ""


def _name_of(path: str) -> str:
    """Return the name of a file in lower case, without the endings of its format."""
    name = path.rpartition("/")[2].lower()
    for ending in (*_COMPRESSIONS, *built_in_suffixes()):
        name = name.removesuffix(ending)
    return name


def _by_ending(paths: list[str]) -> list[str]:
    """Return a line for each kind of file that is not read, with advice if there is some."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for path in paths:
        kinds.setdefault(what_to_do(path), []).append(path)
    lines = []
    for (name, advice), alike in sorted(kinds.items(), reverse=True):
        words = (name, f"{name}s") if name else Ignored.UNKNOWN.value
        lines.append(_note(alike, words) + (f": {advice}" if advice else ""))
    return lines


def _note(paths: list[str], words: tuple[str, str]) -> str:
    return f"ignored: {len(paths):,} {words[len(paths) > 1]} ({_some(paths)})"


def _some(paths: list[str]) -> str:
    return ", ".join(paths[:_MOST_NAMED]) + (", …" if len(paths) > _MOST_NAMED else "")


def fits(names: Sequence[str], parts: list[str]) -> bool:
    """Return whether names match the parts of a pattern; a leading dot must be in the pattern."""
    if not parts or not names:
        return not parts and not names
    if parts[0] != ANY_DEPTH:
        is_named = not names[0].startswith(".") or parts[0].startswith(".")
        return is_named and fnmatchcase(names[0], parts[0]) and fits(names[1:], parts[1:])
    n_seen = next((i for i, name in enumerate(names) if name.startswith(".")), len(names))
    if len(parts) == 1:
        return n_seen == len(names)
    return any(fits(names[i:], parts[1:]) for i in range(n_seen + 1))


def endings() -> str:
    """Return the suffixes of all formats, for messages."""
    return ", ".join([*built_in_suffixes(), ".json", *outside_suffixes()])


def classify(file_name: str) -> tuple[str, str]:
    """Return format and compression of a file by its name, '' where there is none.

    The format is 'json' where only the first bytes show which one of JSON it is. Formats of other
    packages are looked up for a suffix that no built-in format has.
    """
    stem, ending = os.path.splitext(file_name.lower())  # noqa: PTH122  ten times faster than Path
    compression = _COMPRESSIONS.get(ending, "")
    if compression:
        ending = os.path.splitext(stem)[1]  # noqa: PTH122
    if ending == ".json":
        return JSON, compression
    name = ending and (built_in_suffixes().get(ending) or outside_suffixes().get(ending))
    if not name or (compression and format_named(name).holds == "rows"):
        return "", compression
    return name, compression


def may_fit(names: Sequence[str], wanted: list[str]) -> bool:
    """Return whether a pattern may match names, or what is below them; see `fits`.

    Behind what a pattern without `**` matches, hidden names do not.
    """
    n_names, n_wanted = len(names), len(wanted)
    if ANY_DEPTH in wanted:
        return not names[-1].startswith(".") or any(part.startswith(".") for part in wanted)
    is_hidden = any(name.startswith(".") for name in names[n_wanted:])
    return not is_hidden and fits(names[:n_wanted], wanted[:n_names])


def is_listed(path: str) -> bool:
    """Return whether a file in a directory is read: of a known ending that is not Markdown's."""
    return bool(classify(path)[0]) and not path.lower().endswith(".md")


def what_to_do(name: str) -> tuple[str, str]:
    """Return what a file that is not read is called, and what to do with it; '' if unknown."""
    lower = name.lower()
    if lower.endswith(".md"):
        return "Markdown file", "to read Markdown, name the files or a glob such as 'DIR/*.md'"
    for ending, advice in _PACKED.items():
        if lower.endswith(ending):
            return f"{ending} file", f"unpack with {advice}"
    for compressed in _COMPRESSIONS:
        lower = lower.removesuffix(compressed)
    for endings_, advice in _OTHER_KINDS.items():
        for ending in endings_:
            if lower.endswith(ending):
                return f"{ending} file", advice
    return "", ""


def unknown_ending(name: str) -> UsageError:
    """Return the error for a file that is named, and whose ending belongs to no format."""
    advice = what_to_do(name)[1] or "name its format with --format"
    return UsageError(f"{name}: expected a file ending in {endings()} (.gz, .zst); {advice}")


def _json_format(head: bytes) -> str:
    """Return the format of JSON by its first bytes.

    The second line of an object over several lines begins with a key; of JSON Lines, with a brace.
    """
    if head.startswith(b"["):
        return "array"
    lines = [line.strip() for line in head.split(b"\n", 9)]
    second = next((line for line in lines[1:] if line), b"")
    is_open = lines[0].startswith(b"{") and not lines[0].endswith(b"}")
    return "object" if is_open and second.startswith((b'"', b"}")) else "jsonl"


def sniff_records(path: str, compression: str) -> str:
    """Return the format of a file named as text that holds JSON records; `TEXT` if it does not.

    Each of its first lines is an object, or it is an array of objects. Raises `StorageError`.
    """
    head, is_whole = first_bytes(path, compression, _HEAD_BYTES)
    text = head.decode(errors="replace").lstrip()
    if text.startswith("["):
        return "array" if _begins_with_object(text[1:].lstrip()) else TEXT
    if not text.startswith("{"):
        return TEXT
    lines = text.split("\n")
    if not is_whole:
        lines.pop()  # the last one may be half of a line
    lines = [line for line in lines if line.strip()][:_LINES]
    is_json = bool(lines) and all(json_record(line) is not None for line in lines)
    return "jsonl" if is_json else TEXT


def _begins_with_object(text: str) -> bool:
    """Return whether a text begins with a whole object of JSON."""
    try:
        value, _ = JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict)


def sniff_json(path: str, compression: str) -> str:
    """Return the format of a file of JSON by its first bytes; raises `StorageError`."""
    return _json_format(first_bytes(path, compression)[0].lstrip())
