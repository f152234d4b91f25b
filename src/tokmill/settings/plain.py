"""Settings as plain values: for the plan, the manifest and the report of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tokmill.settings.names import schema
from tokmill.settings.schema import Config
from tokmill.settings.source import Source


def output_settings(config: Config) -> dict[str, dict[str, Any]]:
    """Return the settings that decide the bytes of a dataset, by section, as plain values."""
    values = {
        section: {
            name: value
            for name, value in settings.items()
            if schema()[section][name].metadata["affects_output"]
        }
        for section, settings in plain(config).items()
    }
    return {section: kept for section, kept in values.items() if kept}


def plain(config: Config) -> dict[str, dict[str, Any]]:
    """Return every setting of the sections that are used, ready for JSON.

    A run of SFT renders by [sft], others by [render].
    """
    unused = () if config.sft is None else ("render",)
    sections = {name: getattr(config, name) for name in schema() if name not in unused}
    return {
        name: {key: _as_json(getattr(section, key)) for key in schema()[name]}
        for name, section in sections.items()
        if section is not None
    }


def not_default(
    values: Mapping[str, Mapping[str, Any]], sections: Iterable[str]
) -> dict[str, Mapping[str, Any]]:
    """Return the settings that differ from their defaults; a manifest has them all."""
    kept = {name: values[name] for name in sections if name in values}
    for name, section in kept.items():
        if isinstance(section, dict):
            defaults = {key: _as_json(own.default) for key, own in schema()[name].items()}
            kept[name] = {k: v for k, v in section.items() if k not in defaults or v != defaults[k]}
    return kept


def _as_json(value: Any) -> Any:
    if isinstance(value, Source):
        return {key: _as_json(given) for key, given in value.values().items()}
    return [_as_json(item) for item in value] if isinstance(value, tuple) else value
