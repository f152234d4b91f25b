"""What is derived once and kept for later runs, in a file of the user's cache directory.

A missing, damaged or read-only file costs the time to derive it again, nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from pathlib import Path
from typing import Any

import xxhash

from tokmill.errors import StorageError
from tokmill.opening import open_regular
from tokmill.storage import folder_of, make_folder, write_file

_FILE = "engines.json"
_MOST_ENTRIES = 200


def cache_path() -> Path:
    """Return the file, in TOKMILL_CACHE_DIR or the user's cache directory."""
    directory, name = _cache_file()
    return directory / name


def _cache_file() -> tuple[Path, str]:
    """Return a directory of the user, and the name of the file in it: the folder is ours.

    Raises:
        StorageError: the user has no home directory, as in a container that knows a number alone.
    """
    named = os.environ.get("TOKMILL_CACHE_DIR")
    if named:
        return Path(named), _FILE
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(base) if base else Path.home() / ".cache", f"tokmill/{_FILE}"
    except RuntimeError:
        raise StorageError(
            "no home directory: name one for the cache in TOKMILL_CACHE_DIR"
        ) from None


def kept(key: str) -> dict[str, Any] | None:
    """Return the result with a key, None if there is none."""
    entry = _entries().get(key)
    result = entry.get("result") if isinstance(entry, dict) else None
    if isinstance(result, dict) and entry == {"result": result, "sum": _sum(key, result)}:
        return result
    return None


def keep(key: str, result: dict[str, Any]) -> None:
    """Write a result, if the file can be written; the oldest ones are dropped if there are many."""
    entries = _entries()
    entries.pop(key, None)
    entries[key] = {"result": result, "sum": _sum(key, result)}
    with contextlib.suppress(OSError, StorageError):
        directory, name = _cache_file()
        for folder in reversed((directory, *directory.parents)):
            folder.mkdir(mode=0o700, exist_ok=True)
        if "/" in name:
            make_folder(directory, name.partition("/")[0], mode=0o700)
        with folder_of(directory, name) as (inner, _):
            if (owned := os.fstat(inner)).st_uid == os.getuid():
                os.fchmod(inner, owned.st_mode & 0o700)
        text = json.dumps(dict(list(entries.items())[-_MOST_ENTRIES:]))
        write_file(directory, name, text.encode(), replace=True)


def _sum(key: str, result: Any) -> str:
    """Return a hash of a result and its key: with a damaged set, ids would differ silently."""
    return xxhash.xxh3_128_hexdigest(json.dumps([key, result]).encode())


def _entries() -> dict[str, Any]:
    """Return all entries of the file, none if it cannot be read.

    Nor is it read if another user than root can write it, or it is a link: who writes it chooses
    which ids are believed.
    """
    try:
        with (
            folder_of(*_cache_file()) as (folder, last),
            open_regular(last, folder=folder) as file,
        ):
            for owned in (os.fstat(file.fileno()), os.fstat(folder)):
                others = owned.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
                if owned.st_uid not in (0, os.getuid()) or others:
                    return {}
            entries = json.loads(file.read())
    except (OSError, StorageError, ValueError, RecursionError):
        return {}
    return entries if isinstance(entries, dict) else {}
