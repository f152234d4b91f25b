"""Decisions from the first records of a run: schema, names of fields, rendered texts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tokmill.chat.control_strings import RenderedTexts
from tokmill.chat.reading.names import LABEL_KEY, check_names, given_fields, of_record
from tokmill.chat.reading.schemas import FIELDS_BY_SCHEMA, MIXED, recognise
from tokmill.chat.reading.unknown_names import (
    advised_names,
    check_not_single_messages,
    check_roles,
    keys_inside,
)
from tokmill.chat.reading.unsuitable import has_other_labels, preference
from tokmill.chat.reading.values import shown_keys
from tokmill.errors import UsageError
from tokmill.settings.source import UnclearNamesError
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tokmill.settings.sft import SftSettings

_NEEDED = ("messages", "prompt", "completion", "instruction", "output", "text")
"""Fields whose key must occur in one of the first records."""


def resolve_schema(
    settings: SftSettings, records: Sequence[Mapping[str, Any]], where: str = "records"
) -> SftSettings:
    """Return the settings with schema and fields resolved for the whole run.

    `label` is ignored if one record has another label than good or bad. With a chosen schema,
    records that do not fit are refused when they are read.

    Raises:
        UsageError: no record has a known shape, one is preference data, or a given name is wrong.
    """
    check_names(settings)
    _check_keys(settings, records, where)
    read = [of_record(record, settings) for record in records]
    if has_other_labels(read):
        settings = replace(settings, ignore_keys=(*settings.ignore_keys, LABEL_KEY))
        read = [of_record(record, settings) for record in records]
    if settings.schema != "auto":
        return settings
    for record in read:
        if reason := preference(record, recognise(record), settings):
            raise UsageError(f"{where}: {reason}")
    schema = _schema_of_fields(settings) or detect_schema(read, where)
    settings = replace(settings, schema=schema)
    if schema == "text":
        check_not_single_messages(read, settings, where)
    check_roles(read, settings, where)
    return settings


def detect_schema(records: Sequence[Mapping[str, Any]], where: str = "records") -> str:
    """Return the schema of the first records, "mixed" if there are several.

    Records of unknown shape do not count if others are known: they are refused when they are read.
    Without any records the schema is "messages".

    Raises:
        UsageError: no record has a known shape.
    """
    found = {kind for kind in map(recognise, records) if kind}
    if records and not found:
        known = "; ".join(f"{name}: {fields}" for name, fields in FIELDS_BY_SCHEMA.items())
        options, table = advised_names(records)
        raise UnclearNamesError(
            f"{where}: no known schema: found {shown_keys(keys_inside(records))}; known: {known}: "
            f"rename the fields{', or name them: ' if options else ''}",
            options,
            table,
        )
    return "messages" if not records else found.pop() if len(found) == 1 else MIXED


def _schema_of_fields(settings: SftSettings) -> str:
    """Return the schema of the fields in --fields; '' if they leave it open."""
    fields = given_fields(settings.fields)
    if "messages" in fields:
        return "messages"
    if "prompt" in fields:
        return "prompt"
    return "alpaca" if "instruction" in fields else ""


def _check_keys(settings: SftSettings, records: Sequence[Mapping[str, Any]], where: str) -> None:
    """Check that the keys in --fields occur in the records."""
    keys = list(dict.fromkeys(key for record in records for key in record))
    for field, key in given_fields(settings.fields).items():
        if records and field in _NEEDED and key not in keys:
            raise UsageError(
                f"--fields={field}={key}: not in the {where}, which have {shown_keys(keys)}"
            )


_LEAST_SHARE = 0.1
"""With fewer rendered texts, the texts are ordinary and some quote a template."""


def resolve_rendered_text(
    settings: SftSettings,
    records: Sequence[Mapping[str, Any]],
    control: Iterable[str],
    where: str,
) -> SftSettings:
    """Return the settings with `rendered_text` resolved: `text` if no text looks rendered.

    Raises:
        UsageError: the first texts look rendered, and --rendered-text is not given.
    """
    if settings.rendered_text != "refuse":
        return settings
    known = RenderedTexts(set(control))
    read = [of_record(record, settings) for record in records]
    texts = [record["text"] for record in read if _is_text(record, settings)]
    signs = [sign for sign in map(known.sign, texts) if sign]
    if not signs or len(signs) < _LEAST_SHARE * len(texts):
        return replace(settings, rendered_text="text")
    raise UsageError(
        f"{where}: rendered conversations in {len(signs)} of {plural(len(texts), 'text')} (found "
        f"{signs[0]!r}), which would become one reply each, their control tokens spelled out: "
        "--rendered-text=parse takes them as they are and trains all of each, --rendered-text=text "
        "wraps them; without masks: tokmill pretrain --control-tokens-in-text=parse"
    )


def _is_text(record: Mapping[str, Any], settings: SftSettings) -> bool:
    """Return whether a record has schema text."""
    schema = recognise(record) if settings.schema == MIXED else settings.schema
    return schema == "text" and isinstance(record.get("text"), str)


def text_note(settings: SftSettings) -> str:
    """Return a note on the treatment of records of schema text; '' for other schemas."""
    if settings.schema != "text":
        return ""
    if settings.rendered_text == "parse":
        return "text: each record is taken as it is, control tokens read; all of it is trained"
    return "text: each record becomes one assistant message; all of it is trained"
