"""Filled keys of a record and of its messages that nothing reads, by the record's own names."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tokmill.chat.reading.messages import pair_in
from tokmill.chat.reading.names import (
    CALL_KEYS,
    CONTENT_KEYS,
    INPUT_KEYS,
    PART_KEYS,
    READ_BY_SCHEMA,
    REASONING_KEYS,
    ROLE_KEYS,
    SWITCH_KEYS,
    given_fields,
    is_filled,
    is_refusal,
    message_names,
    record_names,
)
from tokmill.chat.reading.values import filled_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokmill.settings.sft import SftSettings

_IN_MESSAGE = frozenset(
    (
        "name", "tool_call_id", "tools",
        *REASONING_KEYS, *CALL_KEYS, *SWITCH_KEYS,
    )
)  # fmt: skip

_NO_PARTS = frozenset(("tools", *CALL_KEYS))
_IN_PART = frozenset(("type", *PART_KEYS, *SWITCH_KEYS))


def unread_in_record(
    given: Mapping[str, Any], record: Mapping[str, Any], schema: str, settings: SftSettings
) -> tuple[str, ...]:
    """Return the filled keys of a record that its schema does not read, not sorted.

    `record`: the record `given`, with its keys under the known names.
    """
    if not settings.fields:
        if len(given) == 1:  # the only field of its schema
            return ()
        return unread_keys(given, schema, settings.ignore_keys)
    names = record_names(settings.fields)
    keys = {name: key for key, name in names.items() if is_filled(given.get(key))}
    unread = [keys.get(name, name) for name in unread_keys(record, schema)]
    put_aside = [name for name in keys if name not in names and is_filled(given.get(name))]
    ignored = [key for key in settings.ignore_keys if is_filled(given.get(key))]
    return (*unread, *put_aside, *ignored)


def unread_in_messages(items: Iterable[Any], where: str, settings: SftSettings) -> tuple[str, ...]:
    """Return the filled keys of a record's messages that nothing reads, as `messages[].id`.

    Those of parts of a content too, as `messages[].content[].id`.
    """
    long_items = [
        item
        for item in items
        if len(item) != 2 or type(item.get("content", item.get("value"))) is not str
    ]
    if not long_items:
        return ()
    ignored = settings.ignore_keys
    always = _read_in_message(ignored, settings.fields)
    found: set[str] = set()
    for item in long_items:
        if not pair_in(item, settings):
            own = {filled_key(item, keys) for keys in (ROLE_KEYS, CONTENT_KEYS)}
            read = always | own - {*ignored}
            unread = {key for key in item if key not in read and is_filled(item[key])}
            is_read = "refusal" not in ignored and is_refusal(item)
            found |= unread - {"refusal"} if is_read else unread
            found |= _unread_in_parts(item.keys() & read - _NO_PARTS, item)
    where = given_fields(settings.fields).get(where, where)
    return tuple(sorted(f"{where}[].{key}" for key in found))


def _unread_in_parts(keys: Iterable[str], item: Mapping[str, Any]) -> set[str]:
    """Return the filled keys that nothing reads in the parts under some keys of a message."""
    return {
        f"{key}[].{name}"
        for key in keys
        if isinstance(item[key], list)
        for part in item[key]
        for name in part
        if name not in _IN_PART and name != part["type"] and is_filled(part[name])
    }


@lru_cache(maxsize=64)
def _read_in_message(ignored: tuple[str, ...], fields: tuple[str, ...]) -> frozenset[str]:
    return _IN_MESSAGE.difference(ignored).union(message_names(fields))


def unread_keys(
    record: Mapping[str, Any], schema: str, ignored: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Return the filled keys of a record that its schema does not read, sorted.

    Takes 0.5 µs for a record of ten filled keys; `ignored` keys are unread too.
    """
    if all(record.values()):  # nearly all records
        return _not_among(tuple(record), schema, ignored)
    filled = tuple([key for key, value in record.items() if is_filled(value)])
    return _not_among(filled, schema, ignored)


@lru_cache(maxsize=1024)
def _not_among(filled: tuple[str, ...], schema: str, ignored: tuple[str, ...]) -> tuple[str, ...]:
    here = frozenset(filled) - frozenset(ignored)
    read = {next((key for key in group if key in here), None) for group in READ_BY_SCHEMA[schema]}
    if "instruction" in here and schema == "prompt":
        read.difference_update(INPUT_KEYS)  # the instruction's own input
    return tuple(sorted({*filled} - read))
