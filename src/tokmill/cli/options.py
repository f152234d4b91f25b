"""Options made from settings: each field of `Config` is an option, a variable and a TOML key."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import click

from tokmill.config import Config, build_config, parse_size, read_toml
from tokmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    _IntType = click.ParamType[int]
else:
    _IntType = click.ParamType  # no generic class before click 8.4

_NAMES = {("tokenizer", "path"): "tokenizer", ("output", "dir"): "output"}
_SHORT = {"tokenizer": "-t", "output": "-o"}
_ESCAPED = ("text_separator", "template", "separator", "terminator", "csv_delimiter")
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\\\": "\\"}


class Size(_IntType):
    """A number of bytes, with a unit if one likes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read `8MiB`, `1GB` or `4096`."""
        if isinstance(value, int):
            return value
        try:
            return parse_size(value, "size")
        except UsageError as error:
            self.fail(str(error).removeprefix("size: "), param, ctx)


def settings_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add an input argument, `--config` and an option for every setting to a command."""
    types = get_type_hints(Config)
    for section in reversed(dataclasses.fields(Config)):
        hints = get_type_hints(types[section.name])
        for setting in reversed(dataclasses.fields(types[section.name])):
            if setting.name != "paths":
                command = _option(section.name, setting, hints[setting.name])(command)
    command = click.option(
        "--config", "-c", "config_file", type=click.Path(path_type=Path), metavar="FILE",
        help="Settings in TOML; options and variables win over it.",
    )(command)  # fmt: skip
    return click.argument("paths", nargs=-1, metavar="[INPUT]...")(command)


def _option(
    section: str, setting: dataclasses.Field[Any], kind: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    name = _NAMES.get((section, setting.name), setting.name)
    choices = setting.metadata.get("choices")
    option_type: Any = kind
    if choices:
        option_type = click.Choice(choices)
    elif name.endswith("_bytes"):
        option_type = Size()
    flags = [f"--{name.replace('_', '-')}", f"{section}__{setting.name}"]
    return click.option(
        *flags,
        *([_SHORT[name]] if name in _SHORT else []),
        type=option_type,
        default=None,
        envvar=f"TOKMILL_{name.upper()}",
        help=f"{setting.metadata['help']}{_default(setting.default)}",
    )


def _default(value: Any) -> str:
    if value in ("", 0, 0.0, "auto"):
        return ""
    if isinstance(value, int) and value >= 1 << 20:
        return f"  [default: {value >> 20} MiB]"
    return f"  [default: {value}]"


def config_from_options(paths: tuple[str, ...], config_file: Path | None, options: Any) -> Config:
    """Build the configuration: option, variable, file, default, in this order.

    Raises:
        UsageError: see `build_config`.
    """
    values: dict[str, dict[str, Any]] = {}
    if config_file is not None:
        values = read_toml(config_file)
        build_config(values, where=str(config_file))
    for key, value in options.items():
        if value is not None:
            section, name = key.split("__")
            values.setdefault(section, {})[name] = _unescaped(value) if name in _ESCAPED else value
    if paths:
        values.setdefault("input", {})["paths"] = list(paths)
    return build_config(values, where="options")


def _unescaped(text: str) -> str:
    out, i = "", 0
    while i < len(text):
        pair = text[i : i + 2]
        out += _ESCAPES.get(pair, text[i])
        i += 2 if pair in _ESCAPES else 1
    return out
