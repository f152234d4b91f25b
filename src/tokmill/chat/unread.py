"""What nothing reads of a record and of its messages, under the names that the record has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tokmill.chat.keys import (
    CALL_KEYS,
    REASONING_KEYS,
    SWITCH_KEYS,
    is_filled,
    takes_refusal,
    unread_keys,
)
from tokmill.chat.names import given_fields, message_names, record_names
from tokmill.chat.pairs import pair_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tokmill.settings.schema import SftSettings

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
        is_read = key == "refusal" and key not in ignored and takes_refusal(item)
        if is_filled(item[key]) and not is_read:
            yield key
