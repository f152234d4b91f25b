"""Settings as plain values: for the plan, the manifest and the report of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_type_hints

from tokmill.settings.declare import section_type
from tokmill.settings.schema import Config
from tokmill.settings.source import Source


def output_settings(config: Config) -> dict[str, dict[str, Any]]:
    """Return the settings that decide the bytes of a dataset, by section, as plain values."""
    chosen = {
        name: {f.name: value for f, value in _fields(section) if f.metadata["affects_output"]}
        for name, section in _sections(config).items()
    }
    return {name: kept for name, kept in chosen.items() if kept}


def plain(config: Config) -> dict[str, dict[str, Any]]:
    """Return every setting as plain values, ready for JSON."""
    return {
        name: {f.name: value for f, value in _fields(section)}
        for name, section in _sections(config).items()
    }


def not_default(
    values: Mapping[str, Mapping[str, Any]], sections: Iterable[str]
) -> dict[str, Mapping[str, Any]]:
    """Return the settings that differ from their defaults; a manifest has them all."""
    types = get_type_hints(Config)
    found = {name: values[name] for name in sections if name in values}
    for name, section in found.items():
        if isinstance(section, dict):
            defaults = {f.name: value for f, value in _fields(section_type(types[name])())}
            found[name] = {
                key: value
                for key, value in section.items()
                if key not in defaults or value != defaults[key]
            }
    return found


def _sections(config: Config) -> dict[str, Any]:
    """Return the sections that are used: a run of SFT renders by [sft], others by [render]."""
    unused = set() if config.sft is None else {"render"}
    sections = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    return {k: v for k, v in sections.items() if v is not None and k not in unused}


def _fields(section: Any) -> Iterator[tuple[dataclasses.Field[Any], Any]]:
    for setting in dataclasses.fields(section):
        yield setting, _as_json(getattr(section, setting.name))


def _as_json(value: Any) -> Any:
    if isinstance(value, Source):
        return {key: _as_json(given) for key, given in value.values().items()}
    return [_as_json(item) for item in value] if isinstance(value, tuple) else value
