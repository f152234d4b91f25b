"""What nothing reads of a record and of its messages, under the names that the record has."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tokmill.chat.reading.messages import pair_in
from tokmill.chat.reading.names import (
    CALL_KEYS,
    INPUT_KEYS,
    READ_BY_SCHEMA,
    REASONING_KEYS,
    SWITCH_KEYS,
    given_fields,
    is_filled,
    is_refusal,
    message_names,
    record_names,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tokmill.settings.sft import SftSettings

_IN_MESSAGE = frozenset(
    (
        "role", "from", "content", "value", "name", "tool_call_id", "tools",
        *REASONING_KEYS, *CALL_KEYS, *SWITCH_KEYS,
    )
)  # fmt: skip


def unread_in_record(
    given: Mapping[str, Any], record: Mapping[str, Any], schema: str, settings: SftSettings
) -> tuple[str, ...]:
    """Return the filled keys of a record that its schema does not read, not sorted.

    `record`: the record that was `given`, with its keys under the names that are known.
    """
    if not settings.fields:
        if len(given) == 1:  # the one field of its schema
            return ()
        return unread_keys(given, schema, settings.ignore_keys)
    names = record_names(settings.fields)
    own = {name: key for key, name in names.items() if is_filled(given.get(key))}
    unread = [own.get(name, name) for name in unread_keys(record, schema)]
    put_aside = [name for name in own if name not in names and is_filled(given.get(name))]
    ignored = [key for key in settings.ignore_keys if is_filled(given.get(key))]
    return (*unread, *put_aside, *ignored)


def unread_in_messages(items: Iterable[Any], where: str, settings: SftSettings) -> tuple[str, ...]:
    """Return the filled keys of a record's messages that nothing reads, as `messages[].id`."""
    long_ones = [item for item in items if len(item) != 2]
    if not long_ones:
        return ()
    found: set[str] = set()
    for item in long_ones:
        if not pair_in(item, settings):
            found.update(_odd(item, settings))
    where = given_fields(settings.fields).get(where, where)
    return tuple(sorted(f"{where}[].{key}" for key in found))


def _odd(item: Mapping[str, Any], settings: SftSettings) -> Iterator[str]:
    ignored = settings.ignore_keys
    for key in (
        item.keys() - _IN_MESSAGE.difference(ignored) - message_names(settings.fields).keys()
    ):
        is_read = key == "refusal" and key not in ignored and is_refusal(item)
        if is_filled(item[key]) and not is_read:
            yield key


def unread_keys(
    record: Mapping[str, Any], schema: str, ignored: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Return the filled keys of a record that its schema does not read, sorted.

    Costs 0.5 µs for a record of ten keys that are filled; `ignored` keys are not read either.
    """
    if all(record.values()):  # as nearly everywhere
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
