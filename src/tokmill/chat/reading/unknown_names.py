"""Records with unknown keys: turns that can be read safely, and otherwise options to copy.

Turns are a list of objects, each with a text and a name of a known role:
`{"dialogue": [{"speaker": "USER", "utterance": "Hi"}]}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tokmill.chat.conversation import ChatError
from tokmill.chat.reading.messages import pair_in
from tokmill.chat.reading.names import (
    ANSWER_KEYS,
    CALL_KEYS,
    INPUT_KEYS,
    MEDIA_KEYS,
    PREFERENCE_KEYS,
    PROMPT_KEYS,
    ROLE_NAMES,
    SYSTEM_KEYS,
    is_filled,
    of_message,
    role_of,
)
from tokmill.chat.reading.values import parsed, quoted
from tokmill.errors import UsageError
from tokmill.settings.names import in_toml
from tokmill.settings.source import UnclearNamesError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokmill.settings.sft import SftSettings

    Records = Sequence[Mapping[str, Any]]

SPEAKER_KEYS = (
    "role", "from", "speaker", "author", "sender", "participant", "who", "user", "name", "type",
)  # fmt: skip
TEXT_KEYS = (
    "content", "value", "utterance", "text", "message", "body", "msg", "transcript", "sentence",
)  # fmt: skip
_SINGLE_KEYS, _PROMPTER = ("role", "from", "speaker", "sender"), "prompter"
"""Keys of the role in a record that is a single message; OASST's name of users."""

_N_LOOKED_AT = 20


def named_turns(records: Records, settings: SftSettings) -> tuple[str, ...]:
    """Return the pairs of `sft.fields` for turns under unknown names; () if they are not clear."""
    lists = lists_in(records)
    known = [lists[key] for key in ("messages", "conversations") if key in lists]
    if any(_is_known(items, settings) for items in known):
        return ()
    found = [(key, _names(items, settings)) for key, items in lists.items()]
    clear = [(key, names) for key, names in found if names is not None]
    if len(clear) != 1 or _has_answer(records):
        return ()
    key, names = clear[0]
    if is_half_sample(records, key):
        return ()
    fields = {"messages": key, **names}
    return tuple(sorted(f"{field}={name}" for field, name in fields.items() if field != name))


def check_assistant(records: Records, settings: SftSettings, where: str) -> None:
    """Refuse records in which the system answers the user and no assistant occurs."""
    if settings.schema not in ("messages", "conversations"):
        return
    speakers: set[str | None] = set()
    answers = False
    for record in records[:_N_LOOKED_AT]:
        items = _objects(record.get(settings.schema))
        roles = [_role(of_message(item, settings), settings) for item in items]
        speakers.update(roles)
        answers |= ("user", "system") in pairwise(roles)
    if answers and speakers <= {"user", "system"}:
        raise UnclearNamesError(
            f"{where}: no message is the assistant's, and system speaks behind user: if that is "
            "who answers, ",
            "--role-names=system=assistant",
            'role_names = {system = "assistant"}',
        )


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


def _role(item: Mapping[str, Any], settings: SftSettings) -> str | None:
    name = item.get("role") or item.get("from")
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


def _is_known(items: Sequence[Mapping[str, Any]], settings: SftSettings) -> bool:
    """Return whether turns have known keys, or are pairs."""
    first = items[0]
    known = (("role", "from"), ("content", "value", *CALL_KEYS))
    return all(any(key in first for key in keys) for keys in known) or bool(
        pair_in(first, settings)
    )


def _names(items: Sequence[Mapping[str, Any]], settings: SftSettings) -> dict[str, str] | None:
    """Return the keys of role and content; None if one is unclear."""
    if all(pair_in(item, settings) for item in items):
        return {}
    speakers = [key for key in SPEAKER_KEYS if _all_roles([i.get(key) for i in items], settings)]
    texts = [key for key in TEXT_KEYS if all(isinstance(item.get(key), str) for item in items)]
    if not speakers or not texts:
        return None
    return {"role": speakers[0], "content": texts[0]}


def _all_roles(values: Sequence[Any], settings: SftSettings) -> bool:
    return all(isinstance(value, str) and role_of(value, settings) for value in values)


def is_half_sample(records: Records, key: str) -> bool:
    """Return whether a list of turns is half a sample: an answer or a prompt stands beside it."""
    filled = {other for record in records for other in record if is_filled(record[other])} - {key}
    other_half = {*ANSWER_KEYS}
    if key in ANSWER_KEYS:
        other_half.update((*PROMPT_KEYS, "instruction", *INPUT_KEYS))
    return not filled.isdisjoint(other_half)


def _has_answer(records: Records) -> bool:
    """Return whether records have a text, or a prompt and its answer, besides their lists."""
    keys = {key for record in records for key, value in record.items() if isinstance(value, str)}
    asked = not keys.isdisjoint((*PROMPT_KEYS, "instruction"))
    return (asked and not keys.isdisjoint(ANSWER_KEYS)) or "text" in keys


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
    """Return options to copy, and the same in TOML; ('', '') if no key looks similar."""
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
    return " ".join(options), in_toml(" ".join(options))


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
