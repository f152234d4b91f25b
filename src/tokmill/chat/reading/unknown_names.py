"""Records with unknown names of keys or roles: options to copy, and mistakes that they may hide."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tokmill.chat.conversation import ChatError
from tokmill.chat.reading.names import (
    ANSWER_KEYS,
    CONTENT_KEYS,
    INPUT_KEYS,
    MEDIA_KEYS,
    PREFERENCE_KEYS,
    PROMPT_KEYS,
    READ_BY_SCHEMA,
    ROLE_KEYS,
    ROLE_NAMES,
    SYSTEM_KEYS,
    is_filled,
    of_message,
    role_of,
)
from tokmill.chat.reading.values import first_present, parsed, quoted
from tokmill.errors import UsageError
from tokmill.settings.names import in_toml
from tokmill.settings.source import UnclearNamesError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokmill.settings.sft import SftSettings

    Records = Sequence[Mapping[str, Any]]

SPEAKER_KEYS = (
    *ROLE_KEYS, "participant", "who", "user", "name", "type",
)  # fmt: skip
TEXT_KEYS = (
    *CONTENT_KEYS, "message", "body", "msg", "transcript", "sentence",
)  # fmt: skip
_SINGLE_KEYS, _PROMPTER = ("role", "from", "speaker", "sender"), "prompter"
"""Keys of the role in a record that is a single message; OASST's name of users."""

_N_LOOKED_AT = 20


def check_roles(records: Records, settings: SftSettings, where: str) -> None:
    """Refuse turns of which no record has only known roles, or in which the system answers."""
    if settings.schema not in ("messages", "conversations"):
        return
    keys = READ_BY_SCHEMA[settings.schema][0]
    chats = [
        [first_present(of_message(item, settings), ROLE_KEYS) for item in items]
        for record in records[:_N_LOOKED_AT]
        if (items := _objects(first_present(record, keys)))
    ]
    roles = [[_role(name, settings) for name in chat] for chat in chats]
    names = [name for chat in chats for name in chat if isinstance(name, str)]
    unknown = [name for name in names if not _role(name, settings)]
    if unknown and all(None in found for found in roles):
        raise UnclearNamesError(
            f"{where}: unknown roles in every record: name them: ",
            *_as_advice([_option("role-names", _advised_roles(names))]),
        )
    answers = any(pair == ("user", "system") for found in roles for pair in pairwise(found))
    if answers and {role for found in roles for role in found} <= {"user", "system"}:
        raise UnclearNamesError(
            f"{where}: no message is the assistant's, and system speaks behind user: if that is "
            "who answers, ",
            "--role-names=system=assistant",
            'role_names = {system = "assistant"}',
        )


def _as_advice(options: Sequence[str]) -> tuple[str, str]:
    """Return options to copy with the same in TOML behind them, and the TOML."""
    table = in_toml(" ".join(options))
    shown = table.replace("}, ", "} and ")
    return f"{' '.join(options)} (under [sft]: {shown})", table


def check_not_single_messages(records: Records, settings: SftSettings, where: str) -> None:
    """Refuse texts that are single messages: a user's message would be trained as a reply."""
    for key in _SINGLE_KEYS:
        values = [record.get(key) for record in records]
        names = [name for name in values if isinstance(name, str)]
        known = [n for n in names if n == _PROMPTER or role_of(n, settings) not in (None, "system")]
        if records and len(known) == len(records):
            shown = ", ".join(dict.fromkeys(known))
            raise UsageError(
                f"{where}: each record is one message ({key}: {shown}), and would become a reply: "
                "put all messages of a conversation into one record, as a list under messages; "
                "--schema=text trains each as a text of its own"
            )


def _role(name: Any, settings: SftSettings) -> str | None:
    return role_of(name, settings) if isinstance(name, str) else None


def speakers_in(records: Records) -> set[str]:
    """Return the known names of roles in the turns of the first records, in lower case."""
    items = [item for found in lists_in(records).values() for item in found]
    names = {item.get(key) for item in items for key in SPEAKER_KEYS}
    return {name.lower() for name in names if isinstance(name, str)} & ROLE_NAMES.keys()


def lists_in(records: Records) -> dict[str, list[Mapping[str, Any]]]:
    """Return the objects in lists of the first records, by key."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for record in records[:_N_LOOKED_AT]:
        for key, value in record.items():
            if key not in PREFERENCE_KEYS and (items := _objects(value)):
                found.setdefault(key, []).extend(items)
    return found


def _objects(value: Any) -> list[Mapping[str, Any]]:
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = parsed(value, "", "")
        except ChatError:
            return []
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        return []
    return value


def is_half_sample(records: Records, key: str) -> bool:
    """Return whether a list of turns is half a sample: an answer or a prompt stands beside it."""
    filled = {other for record in records for other in record if is_filled(record[other])} - {key}
    other_half = {*ANSWER_KEYS}
    if key in ANSWER_KEYS:
        other_half.update((*PROMPT_KEYS, "instruction", *INPUT_KEYS))
    return not filled.isdisjoint(other_half)


_ASSISTANTS = (
    "ai", "bot", "agent", "doctor", "therapist", "teacher", "wizard", "sys", "system",
    "advisor", "helper", "expert", "operator", "counselor", "supporter", "tutor", "machine",
)  # fmt: skip
_ASKED = (
    "question", "prompt", "query", "instruction", "problem", "input", "user", "human", "ask",
    "source",
)  # fmt: skip
_ANSWERED = (
    "answer", "response", "completion", "output", "reply", "solution", "target", "assistant", "bot",
    "summary",
)  # fmt: skip


def advised_names(records: Records) -> tuple[str, str]:
    """Return options to copy, and their TOML; ('', '') if no key looks similar."""
    lists = lists_in(records)
    if lists and is_half_sample(records, next(iter(lists))):
        return "", ""
    roles: dict[str, str] = {}
    if lists:
        key, items = next(iter(lists.items()))
        keys = _text_keys_of(items)
        speaker = _first_of(SPEAKER_KEYS, keys) or (keys[0] if keys else "")
        text = _first_of(TEXT_KEYS, keys) or (keys[-1] if keys else "")
        fields = {"messages": key, "role": speaker, "content": text}
        roles = _advised_roles([item.get(speaker) for item in items])
    else:
        keys = _text_keys_of(records)
        keys = [key for key in keys if key not in (*SYSTEM_KEYS, *MEDIA_KEYS)]
        asked = _first_like(_ASKED, keys) or (keys[0] if keys else "")
        answered = _first_like(_ANSWERED, [key for key in keys if key != asked])
        fields = {"prompt": asked, "completion": answered or (keys[-1] if keys else "")}
    if not all(fields.values()) or len(set(fields.values())) < len(fields):
        return "", ""
    named = {field: key for field, key in fields.items() if field != key}
    options = [_option("fields", named), *([_option("role-names", roles)] if roles else [])]
    return _as_advice(options)


def keys_inside(records: Records) -> list[str]:
    """Return the keys of records and of their lists of objects, such as `dialogue[]: speaker`."""
    lists = lists_in(records)
    keys = dict.fromkeys(key for record in records for key in record)
    return [f"{key}[]: {', '.join(_keys_of(lists[key]))}" if key in lists else key for key in keys]


def _keys_of(items: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for item in items for key in item))


def _text_keys_of(items: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys that hold text, and nothing else, in the items."""
    values = {key: [item.get(key) for item in items] for key in _keys_of(items)}
    return [
        key
        for key, found in values.items()
        if any(found) and all(value is None or isinstance(value, str) for value in found)
    ]


def _first_of(names: Sequence[str], keys: Sequence[str]) -> str:
    return next((name for name in names if name in keys), "")


def _first_like(words: Sequence[str], keys: Sequence[str]) -> str:
    """Return the first key that is one of the words, or that holds one; '' if none does."""
    same = [key for word in words for key in keys if word == key.lower()]
    return next(iter([*same, *(key for word in words for key in keys if word in key.lower())]), "")


def _advised_roles(values: Sequence[Any]) -> dict[str, str]:
    """Return a guess of the roles of unknown names: the first speaker is the user."""
    names = list(dict.fromkeys(value for value in values if isinstance(value, str)))[:4]
    if all(name.lower() in ROLE_NAMES for name in names):
        return {}
    named = {name: "assistant" for name in names if name.lower() in _ASSISTANTS}
    others = [name for name in names if name not in named]
    if not named and len(others) > 1:
        named[others.pop(1)] = "assistant"
    return {**dict.fromkeys(others, "user"), **named}


def _option(setting: str, pairs: Mapping[str, str]) -> str:
    """Return pairs as an option."""
    given = quoted(",".join(f"{name}={value}" for name, value in pairs.items()))
    return f"--{setting}={given}"
