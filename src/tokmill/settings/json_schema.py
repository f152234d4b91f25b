"""The settings of a TOML file as a JSON schema, by which editors complete and check the file.

It is made from the declarations of the settings, so it knows every key, type, range and choice. It
does not know what only a run can find out, such as whether a file exists.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from tokmill.settings.names import Setting, of_source, schema, section_types
from tokmill.settings.schema import Source

DRAFT = "http://json-schema.org/draft-04/schema#"
"""The newest draft that all editors of TOML know."""
_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_AMOUNT = {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*[A-Za-z/]*\s*$"}
_SOURCE = {"$ref": "#/definitions/source"}
_SOURCES = {"type": "array", "items": _SOURCE}

Schema = dict[str, Any]


def toml_schema(more: Mapping[str, Schema]) -> Schema:
    """Return the schema of a TOML file; `more`: schemas of tables that other rooms declare."""
    tables: Schema = {
        section: table_schema(inspect.getdoc(section_types()[section]) or "", settings.values())
        for section, settings in schema().items()
    }
    return {
        "$schema": DRAFT,
        "title": "Settings of tokmill",
        "type": "object",
        "additionalProperties": False,
        "properties": {**tables, "source": _SOURCES, **more},
        "definitions": {"source": _source_schema()},
    }


def table_schema(about: str, settings: Iterable[Setting]) -> Schema:
    """Return the schema of a table; `about`: what it is, of which the first line is taken."""
    return {
        "description": about.split("\n")[0],
        "type": "object",
        "additionalProperties": False,
        "properties": {setting.name: _with_help(setting) for setting in settings},
    }


def _source_schema() -> Schema:
    """Return the schema of a table `[[source]]`: paths, and settings of reading of its own."""
    own = [schema()[section][name] for section in schema() for name in of_source(section)]
    table = table_schema(inspect.getdoc(Source) or "", own)
    names = {
        "name": {**_TEXT, "minLength": 1},
        "paths": {"anyOf": [_TEXT, {**_TEXTS, "minItems": 1}]},
    }
    return {**table, "properties": {**names, **table["properties"]}, "required": ["paths"]}


def _with_help(setting: Setting) -> Schema:
    """Return the schema of a setting with its help, and its default if a file may have it."""
    described: Schema = {"description": setting.metadata["help"], **_value_schema(setting)}
    default = setting.default
    is_unset = default is None or default < setting.metadata.get("minimum", default)
    if not is_unset and setting.kind != tuple[Source, ...]:
        described["default"] = list(default) if isinstance(default, tuple) else default
    return described


def _value_schema(setting: Setting) -> Schema:
    """Return the schema of the values of a setting, as `settings/load.py` reads them."""
    metadata = setting.metadata
    if setting.kind == tuple[Source, ...]:
        return _SOURCES
    if metadata.get("is_mapping"):
        pairs = {"type": "object", "additionalProperties": {"anyOf": [_TEXT, _TEXTS]}}
        return {"anyOf": [pairs, _TEXTS]}
    if setting.kind == tuple[str, ...]:
        return _TEXTS
    if metadata.get("is_json"):
        return {"anyOf": [_TEXT, {"type": "object"}]}
    if setting.kind is bool:
        return {"type": "boolean"}
    if setting.kind is str:
        return _text_schema(metadata)
    number = _number_schema(setting)
    return {"anyOf": [number, _AMOUNT]} if "unit" in metadata else number


def _text_schema(metadata: Mapping[str, Any]) -> Schema:
    """Return the schema of a text: one of its choices, or also a name that a package adds."""
    if "choices" in metadata:
        return {"enum": list(metadata["choices"])}
    if "table" in metadata:  # an editor offers the built-in names, and takes any
        return {"anyOf": [{"enum": list(metadata["table"].choices)}, _TEXT]}
    return _TEXT


def _number_schema(setting: Setting) -> Schema:
    """Return the schema of a number with its bounds."""
    number: Schema = {"type": "integer" if setting.kind is int else "number"}
    for bound in ("minimum", "maximum"):
        if bound in setting.metadata:
            number[bound] = setting.metadata[bound]
    return number
