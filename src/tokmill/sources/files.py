"""Find the files to read, and their order."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tokmill.errors import UsageError
from tokmill.sources.file_list import FileList, Ignored, Way
from tokmill.sources.formats import cut, format_named
from tokmill.sources.hub import commit_of, is_hub
from tokmill.sources.names import classify, describe, endings, unknown_ending
from tokmill.sources.object_list import add_objects
from tokmill.sources.slices import Slice, SourceFile
from tokmill.sources.streams import unreadable
from tokmill.sources.walk import Walk, is_tokmill_dataset, matches
from tokmill.urls import is_store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokmill.settings.schema import InputSettings

__all__ = ["Discovery", "Slice", "SourceFile", "cut", "discover"]

STDIN = "-"


class Discovery(NamedTuple):
    """The files to read, in order.

    `ignored`: a line for each reason to ignore paths. `warnings`: about files named twice.
    """

    files: list[SourceFile]
    ignored: list[str]
    warnings: list[str]


def discover(settings: InputSettings, commits: Mapping[str, str] | None = None) -> Discovery:
    """Find the files to read, in the order of `settings.paths`.

    A glob or a directory stands for its files, at any depth, sorted by path (as strings with
    forward slashes); URLs of object stores too. A directory made by `save_to_disk` keeps its own
    order. Hidden files in directories are skipped. Listed as ignored are: files with an unknown
    ending, Markdown (most are READMEs), pipes, broken links and tokmill's own datasets. Links are
    followed; see `FileList` for files that are reached twice. With a `settings.format` other than
    auto, every file is read as that format. A dataset of the Hub is read at the commit that
    `commits` has for its path, else at the current commit of its revision.

    Raises:
        UsageError: no path is given, nothing is found, or an ending belongs to no format.
        StorageError: a file or directory cannot be read.
    """
    if not settings.paths:
        raise UsageError("no input: expected a file, a directory, a glob, hf:NAME or - for stdin")
    found = FileList()
    walk = Walk(found, settings.format)
    if "" in settings.paths:
        raise UsageError("an input is an empty name: expected a path (is a variable not set?)")
    if settings.paths.count(STDIN) > 1:
        raise UsageError("-: standard input is named twice, and can be read once")
    for path in settings.paths:
        try:
            if is_store(path):
                add_objects(path, settings.format, found)
                continue
            if is_hub(path):
                commit = (commits or {}).get(path)
                if commit is None:
                    commit = commit_of(path, settings.hub_revision)
                found.add(SourceFile(path, "hub", "", 0, 0, commit), Way.NAMED, (path,))
                continue
            _add_path(path, settings, found, walk)
        except PermissionError as error:
            raise unreadable(path, error) from None
    warnings = found.remove_repeated()
    return Discovery(found.files, found.notes(), warnings)


def _add_path(path: str, settings: InputSettings, found: FileList, walk: Walk) -> None:
    if path == STDIN:
        found.add(_stdin(settings), Way.NAMED, (path,))
    elif Path(path).is_dir():
        if is_tokmill_dataset(path):
            raise UsageError(f"{path}: a dataset that tokmill made, expected a corpus")
        _add_directory(Path(path), Way.LISTED, found, walk)
    elif glob.has_magic(path) and not Path(path).exists():
        _add_glob(path, settings, found, walk)
    else:
        _add_file(Path(path), settings.format, Way.NAMED, found)


def _stdin(settings: InputSettings) -> SourceFile:
    data_format = "jsonl" if settings.format == "auto" else settings.format
    if format_named(data_format).holds == "rows":
        raise UsageError(f"-: {data_format} cannot be read from stdin; give a file")
    return SourceFile(STDIN, data_format, "", 0, 0, "")


def _add_directory(directory: Path, way: Way, found: FileList, walk: Walk) -> None:
    n_before = len(found.files)
    walk.add(directory.as_posix(), way)
    if len(found.files) == n_before:
        ignored = "".join(f"; {line}" for line in found.notes())
        message = f"{directory.as_posix()}: no file ending in {endings()} (.gz, .zst)"
        raise UsageError(f"{message}{ignored}")


def _add_glob(pattern: str, settings: InputSettings, found: FileList, walk: Walk) -> None:
    n_before, n_own = len(found.files), found.n_ignored(Ignored.DATASET)
    for path, way in matches(pattern, found, walk):
        if Path(path).is_dir():
            _add_directory(Path(path), way, found, walk)
        elif not os.path.exists(path):  # noqa: PTH110  Path.exists raises for a link in a circle
            found.ignore(path, Ignored.NOWHERE)
        elif not Path(path).is_file():
            found.ignore(path, Ignored.SPECIAL)
        else:
            _add_file(Path(path), settings.format, way, found)
    if len(found.files) == n_before:
        is_own = found.n_ignored(Ignored.DATASET) > n_own
        why = "; what a dataset of tokmill holds is not matched" if is_own else ""
        raise UsageError(f"{pattern}: no file matches{why}")


def _add_file(path: Path, forced: str, way: Way, found: FileList) -> None:
    data_format, compression = classify(path.name)
    if not data_format and forced == "auto":
        if not path.exists():
            raise UsageError(f"{path.as_posix()}: no such file or directory")
        raise unknown_ending(path.as_posix())
    taken = data_format if forced == "auto" else forced
    file, identity = describe(path, taken, compression)
    found.add(file, way, identity)
