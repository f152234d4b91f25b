"""Options made from settings: each field of `Config` is an option, a variable and a TOML key."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import click
from click.core import ParameterSource

from tokmill.cli.completion import completer, files
from tokmill.errors import UsageError
from tokmill.settings.declare import section_type
from tokmill.settings.load import build_config, file_values, merged
from tokmill.settings.names import (
    flag,
    listed,
    option_name,
    refuse_ambiguous,
    shared_names,
    unescaped,
    variable,
)
from tokmill.settings.quantity import UNITS, parse_quantity
from tokmill.settings.schema import Config

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tokmill.tables import Table

    _IntType = click.ParamType[int]
    _StrType = click.ParamType[str]
else:
    _IntType = _StrType = click.ParamType  # no generic class before click 8.4

_LONGEST_CHOICES = 76
"""More characters of choices do not fit on a line of help; they stand in its text."""
_SHORT = {"tokenizer": "-t", "output": "-o", "model": "-m"}


class Names(_StrType):
    """Names separated by commas; the option may be repeated to add more names."""

    name = "text"

    def split_envvar_value(self, rv: str) -> list[str]:
        """Return the value of a variable unchanged: names may contain spaces."""
        return [rv]


class SourceTable(_StrType):
    """A source, as the inside of an inline table of TOML; the option may be repeated."""

    name = "table"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the table."""
        try:
            return tomllib.loads(f"source = {{{value}}}")["source"]
        except tomllib.TOMLDecodeError as error:
            self.fail(
                f"expected 'paths = [\"FILE\"], KEY = VALUE, …', found {value!r}: {error}",
                param,
                ctx,
            )


class Quantity(_IntType):
    """A number with or without a unit, such as `8MiB` or `32k`."""

    def __init__(self, unit: str) -> None:
        self.name = UNITS[unit].metavar
        self._unit = unit

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        if isinstance(value, int):
            return value
        try:
            return parse_quantity(value, self._unit, "")
        except UsageError as error:
            self.fail(str(error).removeprefix(": "), param, ctx)


def settings_options(*sections: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add an input argument, `--config` and an option for each setting of sections to a command."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        command = config_option(section_options(*sections)(command))
        return click.argument("paths", nargs=-1, metavar="[INPUT]...", shell_complete=files)(
            command
        )

    return add


def config_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--config` to a command."""
    return click.option(
        "--config", "-c", "config_file", type=click.Path(path_type=Path), metavar="FILE",
        help="Settings in TOML. Options override them, and so do environment variables, such as "
        "TOKMILL_MAX_TOKENS for --max-tokens.",
    )(command)  # fmt: skip


def section_options(
    *sections: str, only: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add an option for each setting of sections to a command, or only for the names in `only`."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        types = get_type_hints(Config)
        for section in reversed(sections):
            kind = section_type(types[section])
            hints = get_type_hints(kind)
            for setting in reversed(dataclasses.fields(kind)):
                name = option_name(section, setting.name)
                if setting.name != "paths" and (not only or name in only):
                    command = _option(section, setting, hints[setting.name])(command)
        return command

    return add


def _option(
    section: str, setting: dataclasses.Field[Any], kind: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    name = option_name(section, setting.name)
    choices = setting.metadata.get("choices")
    option_type: Any = kind
    table: Table | None = setting.metadata.get("table")
    if choices:
        option_type = click.Choice([choice for choice in choices if choice])
    elif "unit" in setting.metadata:
        option_type = Quantity(setting.metadata["unit"])
    elif kind == tuple[str, ...]:
        option_type = Names()
    elif "is_source" in setting.metadata:
        option_type = SourceTable()
    shown = tuple(filter(None, choices or ()))
    is_long = len("|".join(shown)) > _LONGEST_CHOICES
    metavar = f"[{'|'.join(table.choices)}|…]" if table else name.upper() if is_long else None
    one_of = f" One of {', '.join(shown)}." if is_long else ""
    words = flag(section, setting.name)
    if kind is bool:
        words = f"{words}/--no-{words.removeprefix('--')}"
    other = setting.metadata.get("other_name")
    shown_default = f"  [default: {default}]" if (default := default_text(setting)) else ""
    flags = [words, *([f"--{other}"] if other else []), f"{section}__{setting.name}"]
    return click.option(
        *flags,
        *([_SHORT[name]] if name in _SHORT else []),
        type=option_type,
        metavar=metavar,
        multiple=isinstance(setting.default, tuple),
        default=None,
        envvar=variable(section, setting.name),
        show_envvar=name in shared_names(),
        help=f"{setting.metadata['help']}{one_of}{shown_default}",
        shell_complete=completer(f"{section}.{setting.name}", table),
    )


def default_text(setting: dataclasses.Field[Any]) -> str:
    """Return a setting's default; "" for none: an empty text, a flag, a 0 that is not allowed."""
    value: Any = setting.default
    is_unset = value == 0 and setting.metadata.get("minimum", 0) > 0
    if isinstance(value, bool) or value in ("", ()) or is_unset:
        return ""
    if isinstance(value, tuple):
        return ",".join(value)
    if setting.metadata.get("unit") == "bytes" and value:
        return f"{value >> 30} GiB" if value >= 1 << 30 else f"{value >> 20} MiB"
    return str(value)


def config_from_options(
    paths: tuple[str, ...], config_file: Path | None, options: Mapping[str, Any]
) -> Config:
    """Build the configuration: option, variable, file, default, in this order.

    Raises:
        UsageError: see `build_config`.
    """
    values = option_values(options)
    if paths:
        values.setdefault("input", {})["paths"] = list(paths)
    every = merged(file_values(config_file), values)
    return build_config(every, where="options", named=origin(config_file))


def choice_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose the documents to be shown."""
    for name, default, text in (
        ("--seed", 0, "Draw other documents.  [default: 0]"),
        ("--source", "", "Show documents of this source, input file or directory of inputs."),
        ("--split", "", "Show documents of this split, train or val."),
    ):
        command = click.option(name, default=default, help=text)(command)
    return command


def option_values(options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the settings that options and variables name, as plain values by section.

    Raises:
        UsageError: a variable is set that could mean either of two settings.
    """
    pairs = (key.partition("__") for key in options)
    refuse_ambiguous([(section, name) for section, _, name in pairs])
    values: dict[str, dict[str, Any]] = {}
    for key, value in options.items():
        if value is not None and value != ():
            section, _, name = key.partition("__")
            if isinstance(value, tuple):
                value = list(value) if isinstance(value[0], dict) else listed(value)
            values.setdefault(section, {})[name] = (
                unescaped(name, value) if isinstance(value, str) else value
            )
    return values


def origin(config_file: Path | None) -> Callable[[str, str], str]:
    """Return a function that names a setting in messages by the place where its value was given.

    `--val-fraction (output.val_fraction)`, `TOKMILL_VAL_FRACTION (output.val_fraction)` or, for a
    value from the file, `pretrain.toml: output.val_fraction`.
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
