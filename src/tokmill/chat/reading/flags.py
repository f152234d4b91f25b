"""Flags beside messages that nothing reads: other trainers have other names for what is trained."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from tokmill.chat.conversation import ChatError
from tokmill.chat.names import (
    CALL_KEYS,
    CONTENT_KEYS,
    DETAIL_KEYS,
    PART_KEYS,
    REASONING_KEYS,
    ROLE_KEYS,
    SWITCH_KEYS,
    TURN_KEYS,
    WEIGHT_KEYS,
    is_filled,
    renamed,
)
from tokmill.chat.reading.messages import message_list
from tokmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tokmill.settings.sft import SftSettings

    Records = Sequence[Mapping[str, Any]]

_LISTS = (*TURN_KEYS, "conversations", "prompt", "completion", "history", "input", "output")
_OF_TRAINING = re.compile(r"train|mask|loss|learn|supervis|weight", re.IGNORECASE)
_WITH_PARTS = frozenset((*CONTENT_KEYS, *REASONING_KEYS))
_READ_IN_PART = frozenset(("type", *PART_KEYS, *SWITCH_KEYS))
_READ_IN_MESSAGE = frozenset(
    (
        *ROLE_KEYS, *CONTENT_KEYS, *REASONING_KEYS, *CALL_KEYS, *SWITCH_KEYS, *DETAIL_KEYS,
        "name", "tool_call_id", "tools",
    )
)  # fmt: skip
_TEXTS = frozenset(("0", "1", "true", "false"))


class _Flag(NamedTuple):
    """A key that nothing reads, with all its values in the first records.

    `level`: where it stands: at a `message`, in a `part` of a content, at the `record`, or at the
    record as a `list` with a value for each message.
    """

    key: str
    level: str
    values: list[Any]

    def name(self) -> str:
        places = {"message": "messages[].", "part": "messages[].content[]."}
        return places.get(self.level, "") + self.key


def check_flags(records: Records, settings: SftSettings, where: str) -> None:
    """Check that no key with a name of training has only flags as values, and is not read.

    Raises:
        UsageError: there is one; the message names the options that read it, or leave it out.
    """
    for flag in _flags(records, settings):
        if flag.level == "part" or not _OF_TRAINING.search(flag.key):
            continue
        options = f"--ignore-keys={flag.key} trains without it"
        if any(isinstance(value, str) for value in flag.values):
            options = f"write it as true or false, not as text; {options}"
        elif flag.level == "list":
            options = f"give each message its own, as weight; {options}"
        else:
            options = f"--fields=weight={flag.key} reads it (1: trained); {options}"
        if flag.level == "message" and all(isinstance(value, bool) for value in flag.values):
            options = f"--fields=masked={flag.key} reads it as its opposite; {options}"
        raise UsageError(
            f"{where}: {flag.name()} has only flags ({_shown(flag.values)}), and nothing reads it: "
            f"does it say what is trained? {options}"
        )


def flag_note(records: Records, settings: SftSettings) -> str:
    """Return a note on keys of messages with both values of a flag that nothing reads, or ''."""
    names = [
        f"{flag.name()} ({_shown(flag.values)})"
        for flag in _flags(records, settings)
        if flag.level in ("message", "part") and len({str(v).lower() for v in flag.values}) > 1
    ]
    if not names:
        return ""
    return (
        f"flags that nothing reads: {', '.join(names)}; if they say what is trained, "
        "--fields=weight=KEY reads those of messages"
    )


def _shown(values: Sequence[Any]) -> str:
    return " and ".join(sorted({str(value).lower() for value in values}))


def _flags(records: Records, settings: SftSettings) -> list[_Flag]:
    """Return the keys that nothing reads and that have only flags, in the order of the records."""
    values: dict[tuple[str, str], list[Any]] = {}
    for record in records:
        for key, level, value in _unread_values(renamed(record, settings), settings):
            values.setdefault((key, level), []).append(value)
    return [
        _Flag(key, level, found)
        for (key, level), found in values.items()
        if all(map(_is_flag, found))
    ]


def _is_flag(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lower() in _TEXTS
    return isinstance(value, bool | int | float) and value in (0, 1)


def _unread_values(
    record: Mapping[str, Any], settings: SftSettings
) -> Iterator[tuple[str, str, Any]]:
    """Yield keys that nothing reads in a record, where they stand, and their values."""
    counts = set()
    for field in _LISTS:
        items = _objects(record.get(field))
        counts.add(len(items))
        for item in items:
            yield from _of_message(renamed(item, settings, in_message=True))
    for key, value in record.items():
        if isinstance(value, list) and value and len(value) in counts:
            if key not in _LISTS and not any(isinstance(one, dict | list) for one in value):
                yield from ((key, "list", one) for one in value if one is not None)
        elif value is not None and key not in WEIGHT_KEYS and not isinstance(value, dict | list):
            yield key, "record", value


def _of_message(item: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    for key, value in item.items():
        if key not in _READ_IN_MESSAGE and is_filled(value):
            yield key, "message", value
        parts = value if isinstance(value, list) and key in _WITH_PARTS else ()
        for part in parts:
            for own, flag in part.items() if isinstance(part, dict) else ():
                if own not in _READ_IN_PART and is_filled(flag):
                    yield own, "part", flag


def _objects(value: Any) -> list[Mapping[str, Any]]:
    if not isinstance(value, list | str):
        return []
    if isinstance(value, str) and not value.lstrip().startswith("[{"):
        return []
    try:
        items = message_list(value, "")
    except ChatError:
        return []
    return [item for item in items if isinstance(item, dict)]
