"""How a setting is declared, a field with its metadata, and what its option is called."""

from __future__ import annotations

from dataclasses import field
from typing import Any

_NAMES = {
    ("tokenizer", "path"): "tokenizer",
    ("output", "dir"): "output",
    ("model", "name"): "model",
}


def bytes_setting(default: Any, text: str, **metadata: Any) -> Any:
    """Declare a setting that decides the bytes of the dataset; `text` is its help.

    `unsaid=…` among the metadata: the value that a plan means which does not name the setting. A
    setting that is newer than plans has one, so that datasets of earlier versions go on.
    """
    return field(default=default, metadata={"affects_output": True, "help": text, **metadata})


def speed_setting(default: Any, text: str, **metadata: Any) -> Any:
    """Declare a setting that decides speed, memory or messages, and never a byte of the dataset."""
    return field(default=default, metadata={"affects_output": False, "help": text, **metadata})


def option_name(section: str, name: str) -> str:
    """Return the name of a setting's option, without dashes: `val_fraction`."""
    return _NAMES.get((section, name), name)


def flag(section: str, name: str) -> str:
    """Return a setting's option: `--val-fraction`."""
    return f"--{option_name(section, name).replace('_', '-')}"
