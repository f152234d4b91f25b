"""Names of a setting: its option, its environment variable, its keyword argument."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import get_type_hints

from tokmill.settings.declare import section_type
from tokmill.settings.schema import Config

_NAMES = {
    ("tokenizer", "path"): "tokenizer",
    ("output", "dir"): "output",
    ("model", "name"): "model",
}


def option_name(section: str, name: str) -> str:
    """Return the name of a setting's option and keyword argument: `val_fraction`."""
    return _NAMES.get((section, name), name)


def flag(section: str, name: str) -> str:
    """Return a setting's option: `--val-fraction`."""
    return f"--{option_name(section, name).replace('_', '-')}"


def variable(section: str, name: str) -> str:
    """Return the environment variable of a setting; every setting has its own.

    It is named after the option: TOKMILL_MAX_TOKENS. Where two sections have an option of the same
    name, it includes the section: TOKMILL_SFT_TEMPLATE and TOKMILL_RENDER_TEMPLATE.
    """
    option = option_name(section, name)
    words = ("tokmill", section, option) if option in shared_names() else ("tokmill", option)
    return "_".join(words).upper()


@cache
def shared_names() -> dict[str, list[str]]:
    """Return the option names that several sections use, with those sections."""
    sections: dict[str, list[str]] = {}
    for section, hint in get_type_hints(Config).items():
        for setting in dataclasses.fields(section_type(hint)):
            sections.setdefault(option_name(section, setting.name), []).append(section)
    return {name: found for name, found in sections.items() if len(found) > 1}
