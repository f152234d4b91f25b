"""Names of a setting (option, environment variable, keyword argument), and settings from text."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterable
from functools import cache
from typing import Any, get_type_hints

from tokmill.errors import UsageError
from tokmill.settings.declare import section_type
from tokmill.settings.schema import Config
from tokmill.settings.source import Source

_NAMES = {
    ("tokenizer", "path"): "tokenizer",
    ("output", "dir"): "output",
    ("model", "name"): "model",
    ("input", "sources"): "source",
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


@cache
def other_names(section: str) -> dict[str, str]:
    """Return the second names of a section's settings with the first: strategy -> loading."""
    hints = get_type_hints(Config)
    settings = dataclasses.fields(section_type(hints[section])) if section in hints else ()
    found = {f.metadata.get("other_name"): f.name for f in settings}
    return {other: name for other, name in found.items() if other}


_ESCAPED = ("text_separator", "template", "separator", "terminator", "csv_delimiter")
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\\\": "\\"}
_TRUE, _FALSE = ("1", "true", "t", "yes", "y", "on"), ("0", "false", "f", "no", "n", "off")


def variable_values(settings: Iterable[tuple[str, str]]) -> dict[str, dict[str, Any]]:
    """Return the values that environment variables give to settings, by section.

    `settings`: (section, name) of each setting to look for.

    Raises:
        UsageError: a value has another type, or a variable could mean either of two settings.
    """
    wanted = list(settings)
    refuse_ambiguous(wanted)
    types = get_type_hints(Config)
    values: dict[str, dict[str, Any]] = {}
    for section, name in wanted:
        text = os.environ.get(variable(section, name))
        if text:
            declared = section_type(types[section])
            if get_type_hints(declared)[name] == tuple[Source, ...]:
                raise UsageError(f"{variable(section, name)}: sources stand in a TOML file")
            units = {f.name for f in dataclasses.fields(declared) if "unit" in f.metadata}
            kind = str if name in units else get_type_hints(declared)[name]
            where = f"{variable(section, name)} ({section}.{name})"
            values.setdefault(section, {})[name] = _from_text(text, name, kind, where)
    return values


def refuse_ambiguous(settings: Collection[tuple[str, str]]) -> None:
    """Raise `UsageError` if a variable is set that could mean either of two settings."""
    for name, sections in shared_names().items():
        old = f"TOKMILL_{name.upper()}"
        if old in os.environ and any((section, name) in settings for section in sections):
            named = " or ".join(variable(section, name) for section in sections)
            raise UsageError(f"{old}: there are two settings of this name: set {named} instead")


def _from_text(text: str, name: str, kind: Any, where: str) -> Any:
    """Return a value of the type of its setting."""
    if kind == tuple[str, ...]:
        return listed([text])
    if kind is bool:
        if text.lower() not in (*_TRUE, *_FALSE):
            raise UsageError(f"{where}: expected true or false, found {text!r}")
        return text.lower() in _TRUE
    if kind is str:
        return unescaped(name, text)
    try:
        return kind(text)
    except ValueError:
        raise UsageError(f"{where}: expected {kind.__name__}, found {text!r}") from None


def listed(texts: Iterable[str]) -> list[str]:
    """Return the names in texts that hold several, with commas between them."""
    return [item.strip() for text in texts for item in text.split(",")]


def unescaped(name: str, text: str) -> str:
    r"""Return a setting's value, in some settings with the escapes `\n`, `\t`, `\r` replaced."""
    if name not in _ESCAPED:
        return text
    out, i = "", 0
    while i < len(text):
        pair = text[i : i + 2]
        out += _ESCAPES.get(pair, text[i])
        i += 2 if pair in _ESCAPES else 1
    return out
