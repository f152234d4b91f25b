"""Which files are read, and in which order."""

from __future__ import annotations

import errno
import glob
import json
import os
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, NamedTuple

from tokmill.errors import StorageError, UsageError
from tokmill.sources.slices import Slice, SourceFile, cut
from tokmill.sources.streams import BrokenInputError, ByteStream, unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokmill.config import InputSettings

__all__ = ["Discovery", "Slice", "SourceFile", "cut", "discover"]

HUB_PREFIX = "hf:"
STDIN = "-"

_FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",  # an array or lines: its first byte tells
    ".csv": "csv",
    ".txt": "text",
    ".text": "text",
    ".md": "text",
}
_BINARY_FORMATS = {".parquet": "parquet", ".arrow": "arrow"}
_COMPRESSIONS = {".gz": "gz", ".zst": "zst"}
_EFFECTIVE = os.access in os.supports_effective_ids
_ENDINGS = ", ".join([*_FORMATS, *_BINARY_FORMATS])


class Discovery(NamedTuple):
    """The files to read, in order, and those in directories that were passed over."""

    files: list[SourceFile]
    ignored: list[str]


def discover(settings: InputSettings) -> Discovery:
    """Find the files to read.

    The order is that of `settings.paths`; a glob or a directory stands for its files, at any depth,
    sorted by path (as strings with forward slashes). In a directory, hidden files are skipped;
    files of unknown endings, Markdown (a README is no corpus), pipes, linked directories and
    tokmill's own datasets are listed as ignored; and a dataset made by `save_to_disk` gives its own
    files in its own order. With a `settings.format` other than auto,
    every file is taken as that format. Files of zero bytes hold no records.

    Raises:
        UsageError: no path given, nothing found, or an ending that says no format.
        StorageError: a file or directory cannot be read.
    """
    if not settings.paths:
        raise UsageError("no input: expected a file, a directory, a glob, hf:NAME or - for stdin")
    found = Discovery([], [])
    for path in settings.paths:
        try:
            _add_path(path, settings, found)
        except PermissionError as error:
            raise unreadable(path, error) from None
    return found


def _add_path(path: str, settings: InputSettings, found: Discovery) -> None:
    if path == STDIN:
        found.files.append(_stdin(settings))
    elif path.startswith(HUB_PREFIX):
        file = SourceFile(path, "hub", "", 0, 0, settings.hub_revision)
        found.files.append(file)
    elif Path(path).is_dir():
        _add_directory(Path(path), settings, found)
    elif glob.has_magic(path) and not Path(path).exists():
        _add_glob(path, settings, found)
    else:
        found.files.append(_given_file(Path(path), settings.format))


def _stdin(settings: InputSettings) -> SourceFile:
    data_format = "jsonl" if settings.format == "auto" else settings.format
    if data_format in _BINARY_FORMATS.values():
        raise UsageError(f"-: {data_format} cannot be read from stdin; give a file")
    return SourceFile(STDIN, data_format, "", 0, 0, "")


def _add_glob(pattern: str, settings: InputSettings, found: Discovery) -> None:
    matches = glob.glob(pattern, recursive=True)  # noqa: PTH207  Path.glob wants relative ones
    paths = sorted(Path(match).as_posix() for match in matches)
    if not paths:
        raise UsageError(f"{pattern}: no file matches")
    recursive = "**" in pattern  # it matches the files in its directories too
    for path in map(Path, paths):
        if not path.is_dir():
            found.files.append(_given_file(path, settings.format))
        elif not recursive:
            _add_directory(path, settings, found)


def _given_file(path: Path, forced: str) -> SourceFile:
    data_format, compression = classify(path.name)
    if not data_format and forced == "auto":
        message = f"{path.as_posix()}: expected a file ending in {_ENDINGS} (.gz, .zst)"
        if not path.exists():
            message = f"{path.as_posix()}: no such file or directory"
            raise UsageError(message)
        raise UsageError(f"{message}; name its format with --format")
    return _file(path, data_format if forced == "auto" else forced, compression)


def classify(name: str) -> tuple[str, str]:
    """Give the format ('json' for an array or lines) and compression of a file name; '' if none."""
    stem, ending = os.path.splitext(name.lower())  # noqa: PTH122  a tenth of what Path costs
    if ending in _BINARY_FORMATS:
        return _BINARY_FORMATS[ending], ""
    compression = _COMPRESSIONS.get(ending, "")
    if compression:
        ending = os.path.splitext(stem)[1]  # noqa: PTH122
    return _FORMATS.get(ending, ""), compression


def _file(found: Path | os.DirEntry[str], data_format: str, compression: str) -> SourceFile:
    """Describe a file that can be read."""
    name = found.as_posix() if isinstance(found, Path) else _path(found)
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
    return SourceFile(name, data_format, compression, stat.st_size, stat.st_mtime_ns, "")


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


def _add_directory(directory: Path, settings: InputSettings, found: Discovery) -> None:
    n_before = len(found.files)
    found.files.extend(_walk(directory.as_posix(), settings.format, found.ignored))
    found.ignored.sort()
    if len(found.files) == n_before:
        raise UsageError(f"{directory.as_posix()}: no file ending in {_ENDINGS} (.gz, .zst)")


def _walk(directory: str, forced: str, ignored: list[str]) -> Iterator[SourceFile]:
    """Give the files of a directory in the order of their paths; no list of them is sorted.

    Among its neighbours a directory stands where its name with a slash does, and everything in it
    begins with that: so one directory after the other gives the order of whole paths.
    """
    entries = _entries(directory)
    if "dataset_dict.json" in entries:
        directory = _only_split(Path(directory)).as_posix()
        entries = _entries(directory)
    if "state.json" in entries and "dataset_info.json" in entries:
        yield from _saved_dataset(Path(directory))
        return
    for entry in sorted(entries.values(), key=_order):
        data_format, compression = classify(entry.name)
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False) and not _is_tokmill_dataset(Path(entry)):
            yield from _walk(_path(entry), forced, ignored)
        elif (
            not entry.is_file()
            or not (data_format or forced != "auto")
            or _is_readme(entry.name, forced)
        ):
            ignored.append(_path(entry))
        else:
            taken = data_format if forced == "auto" else forced
            yield _file(entry, taken, compression)


def _entries(directory: str) -> dict[str, os.DirEntry[str]]:
    """Give what stands in a directory, by name."""
    try:
        with os.scandir(directory) as entries:
            return {entry.name: entry for entry in entries}
    except OSError as error:
        raise unreadable(directory, error) from None


def _path(entry: os.DirEntry[str]) -> str:
    """Give the path as `Path` writes it, which names nothing below '.' with a './'."""
    return entry.path.removeprefix("./")


def _order(entry: os.DirEntry[str]) -> str:
    return f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name


def _is_tokmill_dataset(path: Path) -> bool:
    """Say whether a directory is what a run writes, which may stand among its own inputs."""
    return (path / "plan.json").is_file() and (path / "parts").is_dir()


def _is_readme(name: str, forced: str) -> bool:
    return name.lower().endswith(".md") and forced == "auto"


def _only_split(directory: Path) -> Path:
    splits = _read_json(directory / "dataset_dict.json").get("splits")
    if not isinstance(splits, list) or not splits:
        raise UsageError(f"{directory.as_posix()}/dataset_dict.json: names no splits")
    if len(splits) > 1:
        named = ", ".join(f"{directory.as_posix()}/{split}" for split in splits)
        raise UsageError(f"{directory.as_posix()}: a dataset of several splits; give one: {named}")
    return directory / str(splits[0])


def _saved_dataset(directory: Path) -> list[SourceFile]:
    """Give the files of a dataset made by `save_to_disk`, in the order of its state."""
    data_files = _read_json(directory / "state.json").get("_data_files")
    names = [item.get("filename") for item in data_files] if isinstance(data_files, list) else []
    if not names:
        raise UsageError(f"{directory.as_posix()}/state.json: names no data files")
    return [_file(directory / str(name), "arrow", "") for name in names]


def _read_json(path: Path) -> dict[str, object]:
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise unreadable(path.as_posix(), error) from None
    except ValueError as error:
        raise StorageError(f"{path.as_posix()}: not valid JSON: {error}") from None
    return value if isinstance(value, dict) else {}
