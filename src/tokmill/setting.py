"""How a setting is declared: a field with its help, choices and range in its metadata."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def bytes_setting(default: Any, text: str, **metadata: Any) -> Any:
    """Declare a setting that decides the bytes of the dataset; `text` is its help."""
    return field(default=default, metadata={"affects_output": True, "help": text, **metadata})


def speed_setting(default: Any, text: str, **metadata: Any) -> Any:
    """Declare a setting that decides speed, memory or messages, and never a byte of the dataset."""
    return field(default=default, metadata={"affects_output": False, "help": text, **metadata})
