"""Remembers engine choices and scans on this machine, so that later runs start faster.

A remembered choice saves only the timing: ids are compared in every run. A missing, damaged or
read-only file costs time, nothing else.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import unicodedata
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash

from tokmill.engines.choice import ScanResult
from tokmill.engines.engine import FAST_ENGINES, REFERENCE, engine_version, is_installed
from tokmill.errors import StorageError
from tokmill.storage import open_regular, write_file
from tokmill.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokmill.tokenizer.tokenizer import Tokenizer

_FILE = "engines.json"
_MOST_ENTRIES = 1000
_CHOICE_VERSION = 5
"""Of the method of choosing; choices of other versions are ignored."""

_SCAN_VERSION = 1
"""Of the method of comparing characters; scans of other versions are ignored."""

_SCANS = "scans"


def cache_path() -> Path:
    """Return the file of choices, in TOKMILL_CACHE_DIR or the user's cache directory."""
    named = os.environ.get("TOKMILL_CACHE_DIR")
    if named:
        return Path(named) / _FILE
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "tokmill" / _FILE


def variant_of(tokenizer: Tokenizer, control_in_text: str) -> str:
    """Return a hash of everything that decides the ids of a text: the input of the engines.

    Variants of one file differ: with other control tokens, or for continuations.
    """
    reference = tokenizer.data if tokenizer.kind == "sentencepiece" else b""
    parse = b"parse" if control_in_text == "parse" else b"text"
    return _hash(tokenizer.json, tokenizer.rewritten_json, reference, parse)


@lru_cache(maxsize=2)  # a run asks six times, and 150,000 ids take 20 ms
def _hash(*parts: str | bytes) -> str:
    digest = xxhash.xxh3_128()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


class KeptScans:
    """Scan results for one tokenizer variant, one file per engine.

    A result is valid for one version of the engine, of the reference and of Python's Unicode
    tables, from which the texts are made.
    """

    def __init__(self, tokenizer: Tokenizer, control_in_text: str) -> None:
        self._tokenizer = tokenizer
        self._variant = variant_of(tokenizer, control_in_text)

    def find(self, engine: str, *, all_characters: bool) -> ScanResult | None:
        """Return the result for an engine, None if there is none.

        `all_characters`: else one for the common characters will do, if there is no other.
        """
        for_all = self._read(self._of(engine, all_characters=True))
        if for_all is not None or all_characters:
            return for_all
        return self._read(self._of(engine, all_characters=False))

    def keep(self, engine: str, result: ScanResult) -> None:
        """Write the result for an engine."""
        of, plain = self._of(engine, all_characters=not result.uncompared), result.as_json()
        write_kept(_scan_path(of), json.dumps({"of": of, "result": plain, "sum": _sum(of, plain)}))

    def _read(self, of: Sequence[str]) -> ScanResult | None:
        try:
            kept = json.loads(read_kept(_scan_path(of)))
            return (
                ScanResult.from_json(kept["result"])
                if _sum(of, kept["result"]) == kept["sum"]
                else None
            )
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def _of(self, engine: str, *, all_characters: bool) -> list[str]:
        versions = [engine_version(name, self._tokenizer) for name in (engine, REFERENCE)]
        of = [str(_SCAN_VERSION), engine, *versions, unicodedata.unidata_version, self._variant]
        return of if all_characters else [*of, "common"]


def _sum(of: Sequence[str], plain: Any) -> str:
    """Return a hash of a result and its key: with a damaged set, ids would differ silently."""
    return xxhash.xxh3_128_hexdigest(json.dumps([of, plain]).encode())


def _scan_path(of: Sequence[str]) -> Path:
    name = xxhash.xxh3_128_hexdigest(" ".join(of).encode())
    return cache_path().parent / _SCANS / f"{name}.json"


def choice_key(tokenizer: Tokenizer, control_in_text: str, *parts: str) -> str:
    """Return the key of a choice: tokenizer variant, versions of the engines, and `parts`."""
    versions = [
        engine_version(name, tokenizer) if is_installed(name) else "" for name in FAST_ENGINES
    ]
    return " ".join(
        [
            __version__,
            str(_CHOICE_VERSION),
            variant_of(tokenizer, control_in_text),
            *versions,
            *parts,
        ]
    )


def remembered(key: str) -> dict[str, Any] | None:
    """Return the choice with a key, None if there is none."""
    choice = _read().get(key)
    return choice if isinstance(choice, dict) else None


def remember(key: str, choice: dict[str, Any]) -> None:
    """Write a choice; the oldest ones are dropped if there are too many."""
    choices = _read()
    choices.pop(key, None)
    choices[key] = choice
    kept = dict(list(choices.items())[-_MOST_ENTRIES:])
    write_kept(cache_path(), json.dumps(kept, indent=1))


def write_kept(path: Path, text: str) -> None:
    """Write a file of the cache directory, if it can be written."""
    with contextlib.suppress(OSError, StorageError):
        for folder in reversed((path.parent, *path.parent.parents)):
            folder.mkdir(mode=0o700, exist_ok=True)
        if (found := path.parent.stat()).st_uid == os.getuid():
            path.parent.chmod(found.st_mode & 0o700)
        write_file(path, text.encode(), replace=True)


def read_kept(path: Path) -> bytes:
    """Return the bytes of a file of the cache directory.

    Raises:
        OSError: it is missing, a link, or another user than root can write it: who writes it
            chooses the engine.
    """
    with open_regular(path) as file:
        for found in (os.fstat(file.fileno()), path.parent.stat()):
            if found.st_uid not in (0, os.getuid()) or found.st_mode & (
                stat.S_IWGRP | stat.S_IWOTH
            ):
                raise PermissionError(errno.EPERM, "not a private file of this user", str(path))
        return file.read()


def _read() -> dict[str, Any]:
    try:
        choices = json.loads(read_kept(cache_path()))
    except (OSError, ValueError, RecursionError):
        return {}
    return choices if isinstance(choices, dict) else {}
