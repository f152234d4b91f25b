"""Where the plan of an array may be written: to a new file, or over another plan of an array.

A shell may expand a pattern after `--write`, so that its first file is taken for the plan.
"""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tokmill.errors import UsageError
from tokmill.sources.hub import is_hub
from tokmill.sources.names import classify
from tokmill.sources.walk import fits
from tokmill.storage import open_regular, storage_errors
from tokmill.stores.urls import is_store, local_path, shown, store_url

if TYPE_CHECKING:
    from tokmill.settings.schema import Config, InputSettings

FORMAT = "tokmill array plan"

_BEGINNING = b'{"config":{'
_NAME = f'"format":"{FORMAT}"'.encode()
"""Inside a string of JSON, quotes have backslashes: only a key of the plan itself is this."""

_SETTINGS_BYTES = 64 << 20
"""The settings stand before the name of the format; they hold the path of every input."""


def check_plan_place(path: Path, config: Config) -> None:
    """Check that the plan of an array may be written to `path`; change nothing.

    Raises:
        UsageError: a directory, a link or another file is there, or its directory is missing; or
            the path is in the output directory or one of the inputs.
        StorageError: the file there cannot be read.
    """
    if url := store_url(path):
        raise UsageError(f"{shown(url)}: the plan of an array is a file on a disk: name one")
    with storage_errors(path):
        output = local_path(config.output.dir)
        if not is_store(output) and _is_below(path, output):
            raise UsageError(
                f"{path}: in the output directory, which holds the dataset alone: name a file "
                "outside"
            )
        if _is_input(path, config.input):
            raise UsageError(f"{path}: would be read as an input: name another file for the plan")
        if not path.parent.is_dir():
            raise UsageError(f"{path}: there is no directory {path.parent}: make it first")
        if os.path.lexists(path) and not _is_array_plan(path):
            raise UsageError(
                f"{path}: {_kind(path)}, not the plan of an array, so it is not replaced: name "
                "another file, or move that away (did the shell expand a pattern?)"
            )


def _kind(path: Path) -> str:
    if path.is_symlink():
        return "a link"
    return "a directory" if path.is_dir() else "a file"


def _is_array_plan(path: Path) -> bool:
    """Return whether a file begins as the plan of an array, of any version and even if damaged."""
    if path.is_symlink() or not path.is_file():
        return False
    with open_regular(path) as file:
        if file.read(len(_BEGINNING)) != _BEGINNING:
            return False
        return _NAME in file.readline(_SETTINGS_BYTES)


def _is_below(path: Path, directory: str) -> bool:
    """Return whether a path, with its links followed, is a directory or lies in it."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory))


def _is_input(path: Path, settings: InputSettings) -> bool:
    """Return whether a path is one of the inputs, or would be one once it is there."""
    is_listed = bool(classify(path.name)[0]) or settings.format != "auto"
    return any(
        os.path.realpath(path) == os.path.realpath(given)
        or _is_matched(path, given)
        or (is_listed and _is_in_folder(path, given))
        for given in map(local_path, settings.all_paths)
        if not (is_store(given) or is_hub(given) or given == "-")
    )


def _is_pattern(given: str) -> bool:
    return glob.has_magic(given) and not os.path.lexists(given)


def _is_matched(path: Path, pattern: str) -> bool:
    return _is_pattern(pattern) and fits(_names(path), _names(pattern))


def _is_in_folder(path: Path, given: str) -> bool:
    """Return whether a path lies in a directory that is named or matched."""
    if not _is_pattern(given):
        return Path(given).is_dir() and _is_below(path, given)
    names, wanted = _names(path), _names(given)
    return any(fits(names[:n], wanted) for n in range(1, len(names)))


def _names(path: Path | str) -> list[str]:
    return os.path.abspath(path).split("/")  # noqa: PTH100  Path.absolute keeps `..`
