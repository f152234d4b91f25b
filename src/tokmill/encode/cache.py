"""Remembers engine choices on this machine, so that a second run need not make them again.

Only a hint: the spot check goes on while a run encodes, and a file that is missing, damaged or
cannot be written changes nothing but time.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokmill import __version__
from tokmill.encode.engine import FAST_ENGINES, engine_version, is_installed
from tokmill.errors import StorageError
from tokmill.storage import write_whole

if TYPE_CHECKING:
    from tokmill.encode.tokenizer import Tokenizer

_FILE = "engines.json"
_MOST_ENTRIES = 1000
_WAY = 3
"""How engines are chosen; what was chosen in another way is forgotten."""


def cache_path() -> Path:
    """Give the file of choices: under TOKMILL_CACHE_DIR, or the user's cache directory."""
    named = os.environ.get("TOKMILL_CACHE_DIR")
    if named:
        return Path(named) / _FILE
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "tokmill" / _FILE


def choice_key(tokenizer: Tokenizer, *parts: str) -> str:
    """Give the key of a choice: the tokenizer, the engines' versions, and what else decides."""
    versions = [
        engine_version(name, tokenizer) if is_installed(name) else "" for name in FAST_ENGINES
    ]
    return " ".join([__version__, str(_WAY), tokenizer.sha256, *versions, *parts])


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
        write_whole(path, json.dumps(kept, indent=1).encode(), replace=True)


def _read() -> dict[str, Any]:
    try:
        choices = json.loads(cache_path().read_bytes())
    except (OSError, ValueError):
        return {}
    return choices if isinstance(choices, dict) else {}
