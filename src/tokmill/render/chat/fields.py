"""The names of a record's fields, as the settings have them: keys that are left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokmill.config import SftSettings


def of_record(record: Mapping[str, Any], settings: SftSettings) -> Mapping[str, Any]:
    """Return a record as the settings want it read."""
    if not settings.ignore_keys:
        return record
    return {key: value for key, value in record.items() if key not in settings.ignore_keys}


def of_message(item: Mapping[str, Any], settings: SftSettings) -> Mapping[str, Any]:
    """Return a message of a record as the settings want it read."""
    return of_record(item, settings)
