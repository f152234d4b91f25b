"""Remembers engine choices and scans on this machine, so that a second run need not make them.

A choice remembered saves its timing alone: what an engine gives is compared in every run. A file
that is missing, damaged or cannot be written changes nothing but time.
"""

from __future__ import annotations

import contextlib
import json
import os
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash

from tokmill.engines.choice import ScanResult
from tokmill.engines.engine import FAST_ENGINES, REFERENCE, engine_version, is_installed
from tokmill.errors import StorageError
from tokmill.storage import write_file
from tokmill.version import __version__

if TYPE_CHECKING:
    from tokmill.tokenizer.tokenizer import Tokenizer

_FILE = "engines.json"
_MOST_ENTRIES = 1000
_WAY = 4
"""How engines are chosen; what was chosen in another way is forgotten."""

_SCAN_WAY = 1
"""How engines are compared on all characters; the same."""

_SCANS = "scans"


def cache_path() -> Path:
    """Give the file of choices: under TOKMILL_CACHE_DIR, or the user's cache directory."""
    named = os.environ.get("TOKMILL_CACHE_DIR")
    if named:
        return Path(named) / _FILE
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "tokmill" / _FILE


def variant_of(tokenizer: Tokenizer, control_in_text: str) -> str:
    """Return a sum over all that decides the ids of a text: what engines really load.

    Two variants of one file differ here: with other control tokens, or for text that continues.
    """
    digest = xxhash.xxh3_128()
    reference = tokenizer.data if tokenizer.kind == "sentencepiece" else b""
    parts = (tokenizer.json.encode(), tokenizer.rewritten_json.encode(), reference)
    parse = b"parse" if control_in_text == "parse" else b"text"
    for part in (*parts, parse):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


class KeptScans:
    """The results of scans of one tokenizer variant, a file for each engine.

    A result holds for one version of the engine, of the reference and of Python's own tables, which
    the texts are made with.
    """

    def __init__(self, tokenizer: Tokenizer, control_in_text: str) -> None:
        self._tokenizer = tokenizer
        self._variant = variant_of(tokenizer, control_in_text)

    def find(self, engine: str) -> ScanResult | None:
        """Return what is known of an engine, if anything is."""
        try:
            kept = json.loads(self._path(engine).read_bytes())
            if kept["sum"] != self._sum(engine, kept["result"]):
                return None
            return ScanResult.from_json(kept["result"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def keep(self, engine: str, result: ScanResult) -> None:
        """Keep what is known of an engine."""
        plain = result.as_json()
        kept = {"of": self._of(engine), "result": plain, "sum": self._sum(engine, plain)}
        path = self._path(engine)
        with contextlib.suppress(OSError, StorageError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, json.dumps(kept).encode(), replace=True)

    def _of(self, engine: str) -> list[str]:
        versions = [engine_version(name, self._tokenizer) for name in (engine, REFERENCE)]
        return [str(_SCAN_WAY), engine, *versions, unicodedata.unidata_version, self._variant]

    def _sum(self, engine: str, plain: Any) -> str:
        """Return a sum over a result and what it is of: a damaged set would let ids differ."""
        return xxhash.xxh3_128_hexdigest(json.dumps([self._of(engine), plain]).encode())

    def _path(self, engine: str) -> Path:
        name = xxhash.xxh3_128_hexdigest(" ".join(self._of(engine)).encode())
        return cache_path().parent / _SCANS / f"{name}.json"


def choice_key(tokenizer: Tokenizer, control_in_text: str, *parts: str) -> str:
    """Return the key of a choice: the variant, the engines' versions, and what else decides."""
    versions = [
        engine_version(name, tokenizer) if is_installed(name) else "" for name in FAST_ENGINES
    ]
    return " ".join(
        [__version__, str(_WAY), variant_of(tokenizer, control_in_text), *versions, *parts]
    )


def remembered(key: str) -> dict[str, Any] | None:
    """Give the choice kept under a key, if there is one."""
    choice = _read().get(key)
    return choice if isinstance(choice, dict) else None


def remember(key: str, choice: dict[str, Any]) -> None:
    """Keep a choice; the oldest go when there are many."""
    choices = _read()
    choices.pop(key, None)
    choices[key] = choice
    kept = dict(list(choices.items())[-_MOST_ENTRIES:])
    path = cache_path()
    with contextlib.suppress(OSError, StorageError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps(kept, indent=1).encode(), replace=True)


def _read() -> dict[str, Any]:
    try:
        choices = json.loads(cache_path().read_bytes())
    except (OSError, ValueError):
        return {}
    return choices if isinstance(choices, dict) else {}
