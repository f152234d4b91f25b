"""Build settings from plain values: a TOML file, variables, options, keyword arguments.

Options and keyword arguments win over environment variables, these over the file, the file over
defaults. An unknown key, a wrong type or a value out of range is a `UsageError` that names the
setting as it was given.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from tokmill.errors import UsageError
from tokmill.opening import read_named
from tokmill.settings.declare import NAME_OR_PATH, parse_quantity
from tokmill.settings.names import (
    Setting,
    by_keyword,
    every_setting,
    from_text,
    of_source,
    schema,
    section_types,
)
from tokmill.settings.rows import brief
from tokmill.settings.schema import Config, Source, role_of_pair
from tokmill.settings.toml_paths import from_folder
from tokmill.urls import refuse_secrets

MOST_BYTES = 4 << 20
"""A configuration is some kB; what is larger is another file."""

Values = Mapping[str, Mapping[str, Any]]
"""Plain values of settings, by section and name."""


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file into nested dicts.

    Raises:
        UsageError: the file is missing, unreadable, no regular file, or not TOML.
    """
    try:
        content = read_named(path, MOST_BYTES + 1)
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
    return _from_its_folder(values, path)


def _from_its_folder(values: dict[str, dict[str, Any]], file: Path) -> dict[str, dict[str, Any]]:
    """Return the settings of a TOML file with paths as this process opens them."""
    for section, settings in values.items():
        for name, value in settings.items():
            is_path = schema()[section][name].metadata.get("is_path")
            if is_path:
                settings[name] = from_folder(value, file, may_be_name=is_path == NAME_OR_PATH)
    for source in values.get("input", {}).get("sources", ()):
        source["paths"] = from_folder(source["paths"], file)
    return values


def variable_values(settings: Iterable[Setting]) -> dict[str, dict[str, Any]]:
    """Return the values that environment variables give to settings, checked, by section.

    Raises:
        UsageError: a value is wrong, a variable could mean either of two settings, or a variable
            `TOKMILL_…` is of no setting.
    """
    _refuse_unknown_variables()
    values: dict[str, dict[str, Any]] = {}
    for setting in settings:
        without_section = f"TOKMILL_{setting.keyword.upper()}"
        if setting.is_shared and without_section in os.environ:
            both = [other.variable for other in every_setting() if other.keyword == setting.keyword]
            raise UsageError(
                f"{without_section}: there are two settings of this name: set "
                f"{' or '.join(both)} instead"
            )
        if text := os.environ.get(setting.variable):
            try:
                value = from_text(setting, text)
                build_config({setting.section: {setting.name: value}})
            except UsageError as error:
                raise UsageError(f"{setting.variable}: {error.args[0]}") from None
            values.setdefault(setting.section, {})[setting.name] = value
    return values


_OTHER_VARIABLES = ("TOKMILL_CACHE_DIR", "TOKMILL_COMPLETE", "TOKMILL_LOG_FORMAT")


def _refuse_unknown_variables() -> None:
    """Raise `UsageError` for a variable that looks like a setting and is none."""
    settings = every_setting()
    known = {*_OTHER_VARIABLES, *(setting.variable for setting in settings)}
    known |= {f"TOKMILL_{setting.keyword.upper()}" for setting in settings}  # refused if it is two
    for name in sorted(os.environ):
        if name.startswith("TOKMILL_") and name not in known:
            from tokmill.extensions import nearest

            suffixes = {other.removeprefix("TOKMILL_"): other for other in sorted(known)}
            near = nearest(name.removeprefix("TOKMILL_"), list(suffixes))
            advice = near.replace("did you mean ", "did you mean TOKMILL_")
            advice = advice or ": tokmill pretrain --help lists the settings"
            raise UsageError(f"{name}: no setting has this environment variable{advice}")


def argument_values(
    sections: Iterable[str], arguments: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the settings that keyword arguments and environment variables give, by section.

    None means: not given. Where two of `sections` have a setting of one name, the first has it.

    Raises:
        UsageError: an argument that no section has, or a variable with a wrong value.
    """
    settings = by_keyword(sections)
    values: dict[str, dict[str, Any]] = {}
    for argument, value in arguments.items():
        if argument not in settings:
            hint = _home(argument) + _known(argument, settings)
            raise UsageError(f"{argument}: no such setting: {hint}")
        if value is not None:
            setting = settings[argument]
            values.setdefault(setting.section, {})[setting.name] = value
    return merged(variable_values(settings.values()), values)


def config_from_arguments(
    sections: Iterable[str],
    arguments: Mapping[str, Any],
    config_file: Path | None = None,
) -> Config:
    """Build a `Config` from keyword arguments, over environment variables, over a file.

    Raises:
        UsageError: see `argument_values` and `build_config`.
    """
    return build_config(merged(file_values(config_file), argument_values(sections, arguments)))


def merged(*layers: Values) -> dict[str, dict[str, Any]]:
    """Return settings by section; a later layer wins over those before it.

    A layer that names another model discards the model's numbers of the layers before it.
    """
    values: dict[str, dict[str, Any]] = {}
    for layer in layers:
        for section, settings in layer.items():
            if section == "model" and {"name", "family", "parameters"} & set(settings):
                values.pop(section, None)
            values.setdefault(section, {}).update(settings)
    return values


def build_config(values: Values, *, where: str = "") -> Config:
    """Build a `Config` from sections of plain values; `where` begins the message of an error.

    Raises:
        UsageError: an unknown section or key, a wrong type, a value outside its range or choices.
            Without `where` it carries the setting.
    """
    try:
        config = Config(**{name: _section(name, section) for name, section in values.items()})
        low, high = config.limits.min_tokens, config.limits.max_tokens
        if 0 < high < low:
            raise UsageError(f"{low} is more than --max-tokens, {high}", "limits.min_tokens")
        return config
    except UsageError as error:
        if not where:
            raise
        raise UsageError(f"{where}: {error}") from None


def _section(name: str, values: Any) -> Any:
    """Return the settings of a section, checked."""
    if name not in schema():
        raise UsageError(f"unknown section [{name}]; {_home(name)}{_known(name, schema())}")
    if not isinstance(values, dict):
        raise UsageError(f"[{name}] must be a table, found {_kind(values)}")
    return section_types()[name](**checked_values(name, schema()[name], values))


def checked_values(
    section: str, settings: Mapping[str, Setting], values: Mapping[str, Any]
) -> dict[str, Any]:
    """Return values as their settings hold them.

    Raises:
        UsageError: an unknown key, a wrong type, a value outside its range or choices; carries the
            setting.
    """
    checked: dict[str, Any] = {}
    for key, value in values.items():
        if key not in settings:
            hint = _home(key) + _known(key, settings)
            raise UsageError(f"unknown key; {hint}", f"{section}.{key}")
        try:
            checked[key] = _checked(settings[key], value)
        except UsageError as error:
            raise UsageError(error.args[0], f"{section}.{key}") from None
    return checked


def _known(name: str, names: Iterable[str]) -> str:
    """Return the known names, after the one that was probably meant."""
    known = list(names)
    close = get_close_matches(name, known, n=1)
    meant = f"did you mean {close[0]}? " if close else ""
    return f"{meant}known: {', '.join(known)}"


def _home(key: str) -> str:
    """Return a hint on the sections that have a key; "" for none."""
    sections = [name for name, settings in schema().items() if key in settings]
    return f"it belongs to [{'] or ['.join(sections)}]; " if sections else ""


def _checked(setting: Setting, value: Any) -> Any:
    """Return a value as its setting holds it; an error does not name the setting."""
    if setting.kind == tuple[Source, ...]:
        return _sources(value)
    value = _plain(value)
    for text in value if isinstance(value, list | tuple) else [value]:
        if isinstance(text, str):
            refuse_secrets(text)
            if setting.name != "paths":  # the name of a file may be any bytes
                _refuse_surrogates(text)
    if setting.metadata.get("is_mapping"):
        value = _pairs(value)
    if setting.kind == tuple[str, ...]:
        return _strings(value)
    value = _of_kind(setting, value)
    _check_name(setting, value)
    _check_choice(setting, value)
    _check_bounds(setting, value)
    return value


def _strings(value: Any) -> tuple[str, ...]:
    """Return the strings of a list."""
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise UsageError(f"expected a list of strings, found {_kind(value)}")
    if any(not isinstance(item, str) for item in value):
        raise UsageError(f"expected a list of strings, found {brief(value)}")
    return tuple(value)


def _of_kind(setting: Setting, value: Any) -> Any:
    """Return a value of the setting's type, made of what else may stand for it."""
    kind, metadata = setting.kind, setting.metadata
    if metadata.get("is_json"):
        value = _json_object(value)
    if kind is float and type(value) is int:
        value = float(value)
    if isinstance(value, str) and (unit := metadata.get("unit")):
        value = parse_quantity(value, unit)
    if type(value) is not kind:  # True is no whole number
        raise UsageError(f"expected {kind.__name__}, found {_kind(value)} ({brief(value)})")
    return value


def _check_name(setting: Setting, value: Any) -> None:
    """Check a name of a table, which may be that of an extension."""
    table = setting.metadata.get("table")
    if table is not None and value not in table.choices:
        from tokmill.extensions import check_name  # slow, and for names from other packages only

        check_name(table, value)


def _check_choice(setting: Setting, value: Any) -> None:
    """Check a value that is one of a few."""
    choices = setting.metadata.get("choices")
    if choices is None or value in choices:
        return
    from tokmill.extensions import nearest

    known = list(filter(None, choices))
    meant = nearest(str(value), known)
    raise UsageError(f"expected one of {', '.join(known)}; found {value!r}{meant}")


def _check_bounds(setting: Setting, value: Any) -> None:
    """Check a number; NaN is in no bounds."""
    low, high = setting.metadata.get("minimum"), setting.metadata.get("maximum")
    is_above = low is None or value >= low
    is_below = high is None or value <= high
    if not (is_above and is_below):
        bounds = f"at least {low}" if high is None else f"between {low} and {high}"
        raise UsageError(f"expected {bounds}, found {value!r}")


def _plain(value: Any) -> Any:
    """Return a value whose paths are text, and whose numbers of NumPy are Python's."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        return value.item()
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _refuse_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"expected text in UTF-8, found {text!r}") from None


def _sources(values: Any) -> tuple[Source, ...]:
    """Return sources, given as objects or tables; each has another name, by default its paths."""
    if not isinstance(values, list | tuple):
        raise UsageError(f"expected a list of sources, found {_kind(values)}")
    try:
        sources = [_source(f"source {n}", value) for n, value in enumerate(values, 1)]
    except UsageError as error:
        raise UsageError(str(error)) from None  # with the setting of the source
    names = [source.name for source in sources]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"two sources are named {twice!r}: give each its own name")
    return tuple(sources)


def _source(where: str, value: Any) -> Source:
    """Return a source whose paths and settings of reading are checked."""
    if not isinstance(value, Source | Mapping):
        raise UsageError(f"expected a table with paths = [...], found {brief(value)}", where)
    table = dict(value.values() if isinstance(value, Source) else value)
    if isinstance(table.get("paths"), str | os.PathLike):
        table["paths"] = [table["paths"]]
    paths = table.get("paths")
    label = table.get("name") or (paths[0] if isinstance(paths, list | tuple) and paths else "")
    where += f" ({label})" if isinstance(label, str) and label else ""
    settings = {
        "name": Setting("source", "name", str, "", {}),
        "paths": schema()["input"]["paths"],
        **{key: schema()[section][key] for section in schema() for key in of_source(section)},
    }
    checked = checked_values(where, settings, table)
    name, paths = checked.pop("name", None), checked.pop("paths", ())
    if name == "":
        raise UsageError("expected a name, found ''", where)
    if not paths:
        raise UsageError("no paths: expected paths = [...], the inputs of the source", where)
    return Source(name or ", ".join(paths), paths, **checked)


def _json_object(value: Any) -> Any:
    """Return an object, given as a table or as JSON, as JSON whose keys are in order."""
    if value == "":
        return value
    try:
        loaded = json.loads(value) if isinstance(value, str) else value
        if isinstance(loaded, dict):
            return json.dumps(dict(sorted(loaded.items())), ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:  # such as a date
        raise UsageError(f"expected a JSON object: {str(error).lower()}") from None
    raise UsageError(f'expected a JSON object such as {{"a": true}}, found {brief(value)}')


def _pairs(value: Any) -> Any:
    """Return a table of texts, or of lists of texts, as sorted pairs `key=value`, or such pairs."""
    if not isinstance(value, dict):
        is_list = isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
        return sorted(value, key=role_of_pair) if is_list else value
    pairs: list[str] = []
    for key, texts in value.items():
        for text in texts if isinstance(texts, list | tuple) else [texts]:
            if not isinstance(text, str):
                raise UsageError(f"{key}: expected str, found {_kind(text)} ({brief(text)})")
            pairs.append(f"{key}={text}")
    return sorted(pairs, key=role_of_pair)


def _kind(value: Any) -> str:
    return "a table" if isinstance(value, dict) else type(value).__name__
