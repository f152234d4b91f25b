"""Results that a user's cache directory keeps for later runs, in one small file.

A missing, damaged or read-only file costs the time of a comparison, nothing else.
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
from tokmill.storage import open_regular, write_file

_FILE = "engines.json"
_MOST_ENTRIES = 200


def cache_path() -> Path:
    """Return the file, in TOKMILL_CACHE_DIR or the user's cache directory."""
    named = os.environ.get("TOKMILL_CACHE_DIR")
    if named:
        return Path(named) / _FILE
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "tokmill" / _FILE


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
    path = cache_path()
    with contextlib.suppress(OSError, StorageError):
        for folder in reversed((path.parent, *path.parent.parents)):
            folder.mkdir(mode=0o700, exist_ok=True)
        if (owned := path.parent.stat()).st_uid == os.getuid():
            path.parent.chmod(owned.st_mode & 0o700)
        text = json.dumps(dict(list(entries.items())[-_MOST_ENTRIES:]))
        write_file(path, text.encode(), replace=True)


def _sum(key: str, result: Any) -> str:
    """Return a hash of a result and its key: with a damaged set, ids would differ silently."""
    return xxhash.xxh3_128_hexdigest(json.dumps([key, result]).encode())


def _entries() -> dict[str, Any]:
    """Return all entries of the file, none if it cannot be read.

    Nor is it read if another user than root can write it, or it is a link: who writes it chooses
    which ids are believed.
    """
    path = cache_path()
    try:
        with open_regular(path) as file:
            for owned in (os.fstat(file.fileno()), path.parent.stat()):
                others = owned.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
                if owned.st_uid not in (0, os.getuid()) or others:
                    return {}
            entries = json.loads(file.read())
    except (OSError, ValueError, RecursionError):
        return {}
    return entries if isinstance(entries, dict) else {}
