"""How a field of a settings dataclass is declared: with its default, its help and its limits."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from tokmill.settings.quantity import UNITS


def dataset_setting(default: Any, text: str, **metadata: Any) -> Any:
    """Declare a setting that changes the bytes of the dataset; `text` is its help.

    Metadata: `choices`, all values that the setting may have. `table`, a table of names to which
    other packages may add. `unit`, a key of `quantity.UNITS`: text such as "8MiB" is accepted for
    the number. `of_source`: a source may have a value of its own. `is_hidden`: there is no option.
    """
    return _setting(default, text, affects_output=True, **metadata)


def runtime_setting(default: Any, text: str, **metadata: Any) -> Any:
    """Declare a setting that changes speed, memory, messages or the bill, but no byte of output."""
    return _setting(default, text, affects_output=False, **metadata)


def _setting(default: Any, text: str, **metadata: Any) -> Any:
    text += UNITS[metadata["unit"]].help if "unit" in metadata else ""
    return field(default=default, metadata={"help": text, **metadata})
