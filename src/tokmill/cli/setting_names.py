"""What a setting is called on the command line, and where its value came from."""

from __future__ import annotations

import dataclasses
import os
from functools import cache
from typing import TYPE_CHECKING, Any, get_type_hints

import click
from click.core import ParameterSource

from tokmill.errors import UsageError
from tokmill.settings.declare import flag, option_name
from tokmill.settings.load import section_type
from tokmill.settings.schema import Config

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


def variable(section: str, name: str) -> str:
    """Return the environment variable of a setting; every setting has its own.

    It is named after the option; where two sections have an option of one name, it carries the
    section: TOKMILL_MAX_TOKENS, but TOKMILL_SFT_TEMPLATE and TOKMILL_RENDER_TEMPLATE.
    """
    option = option_name(section, name)
    words = ("tokmill", section, option) if option in shared_names() else ("tokmill", option)
    return "_".join(words).upper()


@cache
def shared_names() -> dict[str, list[str]]:
    """Return the names that options of several sections have, with those sections."""
    sections: dict[str, list[str]] = {}
    for section, hint in get_type_hints(Config).items():
        for setting in dataclasses.fields(section_type(hint)):
            sections.setdefault(option_name(section, setting.name), []).append(section)
    return {name: found for name, found in sections.items() if len(found) > 1}


def refuse_ambiguous(options: Mapping[str, Any]) -> None:
    """Raise `UsageError` if a variable is set that does not say which of two settings it means."""
    for name, sections in shared_names().items():
        old = f"TOKMILL_{name.upper()}"
        if old in os.environ and any(f"{section}__{name}" in options for section in sections):
            named = " or ".join(variable(section, name) for section in sections)
            raise UsageError(f"{old}: there are two settings of this name: set {named} instead")


def origin(config_file: Path | None) -> Callable[[str, str], str]:
    """Return what names a setting of the running command in a message, after its origin.

    `--val-fraction (output.val_fraction)`, `TOKMILL_VAL_FRACTION (output.val_fraction)`, or, of a
    value that is on neither, `pretrain.toml: output.val_fraction`.
    """

    def named(section: str, name: str) -> str:
        context = click.get_current_context(silent=True)
        source = context and context.get_parameter_source(f"{section}__{name}")
        if source is ParameterSource.ENVIRONMENT:
            return f"{variable(section, name)} ({section}.{name})"
        if source is not ParameterSource.COMMANDLINE and config_file is not None:
            return f"{config_file}: {section}.{name}"
        return f"{flag(section, name)} ({section}.{name})"

    return named
