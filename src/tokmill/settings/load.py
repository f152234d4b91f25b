"""Build settings from plain values: a TOML file, options, keyword arguments.

Options and keyword arguments win over environment variables, these over the file, the file over
defaults. An unknown key, a wrong type or a value out of range is a `UsageError` that names the
file or option and the key.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

from tokmill.errors import UsageError
from tokmill.settings.declare import section_type
from tokmill.settings.names import option_name, other_names, variable, variable_values
from tokmill.settings.other_words import advice
from tokmill.settings.quantity import parse_quantity
from tokmill.settings.regular_file import check_regular
from tokmill.settings.schema import Config
from tokmill.settings.secrets import refuse_secrets
from tokmill.settings.source import READING, Source

MOST_BYTES = 4 << 20
"""A configuration is some kB; what is larger is another file."""


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file into nested dicts.

    Raises:
        UsageError: the file is missing, unreadable, no regular file, or not TOML.
    """
    try:
        check_regular(path)
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) <= MOST_BYTES:
            return tomllib.loads(content.decode())
    except FileNotFoundError:
        raise UsageError(f"{path}: no such configuration file") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # also an integer of too many digits
        raise UsageError(f"{path}: not valid TOML: {error}") from None
    raise UsageError(f"{path}: expected settings in TOML, found more than {MOST_BYTES >> 20} MiB")


def file_values(path: Path | None) -> dict[str, dict[str, Any]]:
    """Read the settings of a TOML file, checked, as plain values by section.

    Raises:
        UsageError: see `read_toml` and `build_config`.
    """
    if path is None:
        return {}
    values = read_toml(path)
    if "source" in values:
        values.setdefault("input", {})["sources"] = values.pop("source")
    build_config(values, where=str(path))
    return values


def merged(*layers: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return settings by section; a later layer wins over those before it.

    A layer that names another model discards the model's numbers of the layers before it.
    """
    values: dict[str, dict[str, Any]] = {}
    for layer in layers:
        for section, settings in layer.items():
            if section == "model" and {"name", "family", "parameters"} & set(settings):
                values.pop(section, None)
            values.setdefault(section, {}).update(_first_names(section, settings))
    return values


def config_from_arguments(
    sections: Iterable[str],
    arguments: Mapping[str, Any],
    config_file: Path | None = None,
    *,
    also: Collection[str] = (),
) -> Config:
    """Build a `Config` from keyword arguments, over environment variables, over a file.

    Raises:
        UsageError: see `argument_values` and `build_config`.
    """
    given = argument_values(sections, arguments, also=also)
    values = merged(file_values(config_file), given)
    return build_config(values, where="arguments", named=option_name)


def argument_values(
    sections: Iterable[str], arguments: Mapping[str, Any], *, also: Collection[str] = ()
) -> dict[str, dict[str, Any]]:
    """Return the settings that keyword arguments and environment variables give, by section.

    Arguments have the names of the options. None means: not given. Where two of `sections` have a
    setting of one name, the first has it. `also`: arguments that stand in other sections.

    Raises:
        UsageError: an argument that no section has, or a variable of the wrong type.
    """
    types = get_type_hints(Config)
    sections = list(sections)
    settings = {
        option_name(section, f.name): (section, f.name)
        for section in reversed([*sections, *(set(types) - set(sections))])
        for f in dataclasses.fields(section_type(types[section]))
        if section in sections or option_name(section, f.name) in also
    }
    for section in sections:
        others = other_names(section)
        settings |= {other: (section, name) for other, name in others.items()}
    values: dict[str, dict[str, Any]] = {}
    for argument, value in arguments.items():
        if argument not in settings:
            options = {f"--{name.replace('_', '-')}" for name in settings}
            hint = advice(argument, options) or _home(argument) + _known(argument, settings)
            raise UsageError(f"{argument}: no such setting: {hint}")
        if value is not None:
            section, name = settings[argument]
            if name in values.setdefault(section, {}):
                raise UsageError(f"{argument}: the same setting as {name}: give one of them")
            values[section][name] = value
    variables = variable_values(settings.values())
    for section, found in variables.items():
        for name, value in found.items():
            where = f"{variable(section, name)} ({section}.{name})"
            build_config({section: {name: value}}, where="", named=lambda *_, w=where: w)
    return merged(variables, values)


def _plain(value: Any) -> Any:
    """Return a value whose paths are text, and whose numbers of NumPy are Python's."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        return value.item()
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def build_config(
    values: Mapping[str, Mapping[str, Any]],
    *,
    where: str,
    named: Callable[[str, str], str] | None = None,
) -> Config:
    """Build a `Config` from sections of plain values; `where` names their origin in messages.

    `named`: returns what a message calls a setting, from its section and key, where that is not
    `WHERE: SECTION.KEY`.

    Raises:
        UsageError: an unknown section or key, a wrong type, a value outside its range or choices.
    """
    sections = {f.name: f for f in dataclasses.fields(Config)}
    types = get_type_hints(Config)
    built: dict[str, Any] = {}
    for name, section in values.items():
        if name not in sections:
            raise UsageError(
                f"{where}: unknown section [{name}]; {_home(name)}{_known(name, sections)}"
            )
        if not isinstance(section, dict):
            raise UsageError(f"{where}: [{name}] must be a table, found {_kind(section)}")
        words = partial(named, name) if named else f"{where}: {name}.{{}}".format
        given = _first_names(name, section)
        built[name] = _build_section(section_type(types[name]), given, words)
    return Config(**built)


def _first_names(section: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with the first name of each that has two."""
    others = other_names(section)
    for other, name in others.items():
        if other in settings and name in settings:
            raise UsageError(f"{section}.{other}: the same setting as {name}: give one of them")
    return {others.get(name, name): value for name, value in settings.items()}


def _known(name: str, names: Iterable[str]) -> str:
    """Return the known names, after the one that was probably meant."""
    known = list(names)
    close = get_close_matches(name, known, n=1)
    meant = f"did you mean {close[0]}? " if close else ""
    return f"{meant}known: {', '.join(known)}"


def _home(key: str) -> str:
    """Return a hint on the sections that have a key; "" for none."""
    sections = get_type_hints(Config).items()
    found = [name for name, hint in sections if key in get_type_hints(section_type(hint))]
    return f"it belongs to [{'] or ['.join(found)}]; " if found else ""


def _build_section(kind: type, values: Mapping[str, Any], named: Callable[[str], str]) -> Any:
    known = {f.name: f for f in dataclasses.fields(kind)}
    types = get_type_hints(kind)
    checked: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            raise UsageError(f"{named(key)}: unknown key; {_home(key)}{_known(key, known)}")
        checked[key] = _check(types[key], value, known[key].metadata, named(key))
    low, high = checked.get("min_tokens", 0), checked.get("max_tokens", 0)
    if high and low > high:
        raise UsageError(f"{named('min_tokens')}: {low} is more than {named('max_tokens')}, {high}")
    return kind(**checked)


def _check(expected: Any, value: Any, metadata: Mapping[str, Any], where: str) -> Any:
    if metadata.get("is_source"):
        return _sources(value, where)
    value = _plain(value)
    for text in value if isinstance(value, list | tuple) else [value]:
        if isinstance(text, str):
            refuse_secrets(text, where)
    if metadata.get("is_mapping"):
        value = _pairs(value, where)
    if expected == tuple[str, ...]:
        if isinstance(value, str) or not isinstance(value, list | tuple):
            raise UsageError(f"{where}: expected a list of strings, found {_kind(value)}")
        if any(not isinstance(item, str) for item in value):
            raise UsageError(f"{where}: expected a list of strings, found {value!r}")
        return tuple(value)
    if metadata.get("is_json"):
        value = _json_object(value, where)
    if expected is float and type(value) is int:
        value = float(value)
    if isinstance(value, str) and (unit := metadata.get("unit")):
        value = parse_quantity(value, unit, where)
    if type(value) is not expected:
        raise UsageError(f"{where}: expected {expected.__name__}, found {_kind(value)} ({value!r})")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{where}: expected text in UTF-8, found {value!r}") from None
    table = metadata.get("table")
    if table is not None and value not in table.choices:
        from tokmill.extensions import check_name  # slow, and for names from other packages only

        check_name(table, value, where)
    choices, low, high = (metadata.get(key) for key in ("choices", "minimum", "maximum"))
    if choices is not None and value not in choices:
        option = f"--{where.rpartition('.')[2].replace('_', '-')}"
        raise UsageError(
            f"{where}: expected one of {', '.join(filter(None, choices))}; found {value!r}"
            + (f": {hint}" if (hint := advice(value, {option})) else "")
        )
    if (low is not None and not value >= low) or (high is not None and not value <= high):
        bounds = f"at least {low}" if high is None else f"between {low} and {high}"
        raise UsageError(f"{where}: expected {bounds}, found {value!r}")
    return value


def _sources(values: Any, where: str) -> tuple[Source, ...]:
    """Return sources, given as objects or tables; each has another name, by default its paths."""
    if not isinstance(values, list | tuple):
        raise UsageError(f"{where}: expected a list of sources, found {_kind(values)}")
    sources = tuple(_source(value, f"{where}, source {n}") for n, value in enumerate(values, 1))
    names = [source.name for source in sources]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{where}: two sources are named {twice!r}: give each its own name")
    return sources


def _source(value: Any, where: str) -> Source:
    if not isinstance(value, Source | Mapping):
        raise UsageError(f"{where}: expected a table with paths = [...], found {value!r}")
    table = dict(value.values() if isinstance(value, Source) else value)
    name, paths = table.pop("name", None), _plain(table.pop("paths", ()))
    paths = [paths] if isinstance(paths, str) else paths
    config = build_config({"input": {"paths": paths}}, where=where)
    if not config.input.paths:
        raise UsageError(f"{where}: no paths: expected paths = [...], the inputs of the source")
    name = ", ".join(config.input.paths) if name is None else name
    if not isinstance(name, str) or not name:
        raise UsageError(f"{where}: expected a name, found {name!r}")
    sections = {key: section for section, keys in READING.items() for key in keys}
    for key, given in table.items():
        if key not in sections:
            raise UsageError(
                f"{where} ({name}): {key}: no setting of reading: {_known(key, sections)}"
            )
        built = build_config({sections[key]: {key: given}}, where=f"{where} ({name})")
        table[key] = getattr(getattr(built, sections[key]), key)
    return Source(name, config.input.paths, **table)


def _json_object(value: Any, where: str) -> Any:
    """Return an object, given as a table or as JSON, as JSON whose keys are in order."""
    if value == "":
        return value
    try:
        found = json.loads(value) if isinstance(value, str) else value
        if isinstance(found, dict):
            return json.dumps(dict(sorted(found.items())), ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:  # such as a date
        raise UsageError(f"{where}: expected a JSON object: {str(error).lower()}") from None
    raise UsageError(f'{where}: expected a JSON object such as {{"a": true}}, found {value!r}')


def _pairs(value: Any, where: str) -> Any:
    """Return a table of texts as sorted pairs `key=value`, which a list may hold as well."""
    if not isinstance(value, dict):
        is_list = isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
        return sorted(value) if is_list else value
    for key, text in value.items():
        if not isinstance(text, str):
            raise UsageError(f"{where}.{key}: expected str, found {_kind(text)} ({text!r})")
    return sorted(f"{key}={text}" for key, text in value.items())


def _kind(value: Any) -> str:
    return "a table" if isinstance(value, dict) else type(value).__name__
