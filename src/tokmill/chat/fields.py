"""A record as the settings want it read: keys under their known names, others left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.chat.names import message_names, record_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokmill.settings.schema import SftSettings


def of_record(record: Mapping[str, Any], settings: SftSettings) -> Mapping[str, Any]:
    """Return a record with the names that are known, and without the keys to ignore."""
    names = record_names(settings.fields)
    return _renamed(record, names, settings.ignore_keys)


def of_message(item: Mapping[str, Any], settings: SftSettings) -> Mapping[str, Any]:
    """Return a message of a record with the names that are known, and without keys to ignore."""
    names = message_names(settings.fields)
    return _renamed(item, names, settings.ignore_keys)


def _renamed(
    found: Mapping[str, Any], names: Mapping[str, str], ignored: tuple[str, ...]
) -> Mapping[str, Any]:
    if ignored:
        found = {key: value for key, value in found.items() if key not in ignored}
    if names.keys().isdisjoint(found):
        return found
    rest = {key: value for key, value in found.items() if key not in names}
    # A key that is named wins over one of the known name, where it says something.
    given = {names[key]: found[key] for key in names if found.get(key) is not None}
    return {**rest, **given}
