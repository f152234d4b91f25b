"""The names that users write: commands, options, settings, Python names, exit codes, manifest keys.

    python -m tests.surface        write them as they are now: at each release

docs/upgrading.md promises that they stay. A test compares: what is new is no matter.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import click

import tokmill
from tests.frozen.make import frozen_sets
from tokmill import errors
from tokmill.cli.main import COMMANDS, load_command
from tokmill.settings.names import schema

STORED = Path(__file__).parent / "frozen" / "surface.json"


def surface() -> dict[str, list[str]]:
    """Return all names, by what they are names of."""
    names = {f"settings of {section}": sorted(keys) for section, keys in schema().items()}
    names["exit codes"] = [
        f"{name}: {error.exit_code}"
        for name, error in vars(errors).items()
        if inspect.isclass(error) and issubclass(error, errors.TokmillError)
    ]
    for verb in COMMANDS:
        names |= _of_command(f"tokmill {verb}", load_command(verb))
    for module in (tokmill, tokmill.loader, tokmill.bill):
        names |= _of_module(module)
    for folder in frozen_sets()[-1].datasets.glob("*/manifest.json"):
        for where, keys in _keys("manifest", json.loads(folder.read_bytes())).items():
            names[where] = sorted({*names.get(where, []), *keys})
    return {where: found for where, found in sorted(names.items()) if found}


def _of_command(name: str, command: click.Command) -> dict[str, list[str]]:
    """Return the options of a command, and of those below it."""
    options = [text for one in command.params for text in (*one.opts, *one.secondary_opts)]
    found = {name: sorted(text for text in options if text.startswith("-"))}
    if isinstance(command, click.Group):
        for below, inner in command.commands.items():
            found |= _of_command(f"{name} {below}", inner)
    return found


def _of_module(module: ModuleType) -> dict[str, list[str]]:
    """Return the public names of a module, and the parameters of its functions and classes."""
    found = {module.__name__: sorted(module.__all__)}
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isfunction(value) or inspect.isclass(value):
            found[f"{module.__name__}.{name}"] = _parameters(value)
        if inspect.isclass(value):
            methods = inspect.getmembers(value, inspect.isfunction)
            public = [(one, method) for one, method in methods if not one.startswith("_")]
            found |= {f"{module.__name__}.{name}.{one}": _parameters(m) for one, m in public}
    return found


def _parameters(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if not name.startswith("_")]


def _keys(where: str, value: Any) -> dict[str, list[str]]:
    """Return the keys of a manifest, and of the rows of its lists."""
    found = {where: list(value)}
    for key in ("files", "shards", "sources"):
        found[f"{where}.{key}"] = sorted({name for row in value[key] for name in row})
    return found


if __name__ == "__main__":
    rows = [f"{json.dumps(where)}: {json.dumps(names)}" for where, names in surface().items()]
    STORED.write_text("{\n" + ",\n".join(rows) + "\n}\n", "utf-8")
