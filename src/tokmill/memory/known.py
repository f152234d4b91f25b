"""The built-in models: configurations of well-known ones by name, kept in known.json.

They hold what decides tensors, windows and positions, as the config.json of each model on the Hub.
"""

from __future__ import annotations

import difflib
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

SAME_TENSORS = re.compile(r"(instruct|chat|base|it|pt|hf)+$")
"""Ends of names of models that differ from the one before them in the values of tensors only."""


def known_models() -> tuple[str, ...]:
    """Return the names of the built-in models, sorted."""
    return tuple(sorted(_file()["models"]))


def known_config(name: str) -> tuple[str, dict[str, Any]] | None:
    """Return the built-in name that a name means, and its configuration; None if there is none.

    Case, separators, an organisation before a slash and an ending as -Instruct do not matter.
    """
    plain = _plain(name)
    by_plain = _by_plain()
    found = by_plain.get(plain) or by_plain.get(SAME_TENSORS.sub("", plain))
    return None if found is None else (found, _file()["models"][found])


def near_models(name: str) -> tuple[str, ...]:
    """Return the three built-in names that look most like a name."""
    by_plain = _by_plain()
    near = difflib.get_close_matches(_plain(name), by_plain, n=3, cutoff=0.0)
    return tuple(dict.fromkeys(by_plain[plain] for plain in near))


@cache
def _by_plain() -> dict[str, str]:
    """Return the built-in name of each name without its separators."""
    found = {_plain(name): name for name in _file()["models"]}
    return found | {_plain(other): name for other, name in _file()["also"].items()}


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name.rstrip("/").rpartition("/")[2].lower())


@cache
def _file() -> dict[str, dict[str, Any]]:
    text = Path(__file__).with_name("known.json").read_text(encoding="utf-8")
    loaded: dict[str, dict[str, Any]] = json.loads(text)
    return loaded
