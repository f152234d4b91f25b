"""What to write for records of no known schema: the keys that they have, named as fields."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tokmill.chat.keys import MEDIA_KEYS, SYSTEM_KEYS
from tokmill.chat.names import ROLE_NAMES
from tokmill.chat.turns import SPEAKER_KEYS, TEXT_KEYS, is_half, lists_in
from tokmill.chat.values import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Records = Sequence[Mapping[str, Any]]

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


def advised_names(records: Records) -> str:
    """Return the options to copy and change, and the same in TOML; '' where nothing is near."""
    lists = lists_in(records)
    if lists and is_half(records, next(iter(lists))):
        return ""
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
        return ""
    named = {field: key for field, key in fields.items() if field != key}
    options, toml = _written("fields", named)
    if roles:
        more_options, more_toml = _written("role_names", roles)
        options, toml = f"{options} {more_options}", f"{toml} and {more_toml}"
    return f"{options} (under [sft]: {toml})"


def keys_inside(records: Records) -> list[str]:
    """Return the keys of records, and of the lists of objects in them: `dialogue[]: speaker`."""
    lists = lists_in(records)
    keys = dict.fromkeys(key for record in records for key in record)
    return [f"{key}[]: {', '.join(_keys_of(lists[key]))}" if key in lists else key for key in keys]


def _keys_of(items: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for item in items for key in item))


def _text_keys_of(items: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys that hold text in some and nothing else in any."""
    values = {key: [item.get(key) for item in items] for key in _keys_of(items)}
    return [
        key
        for key, found in values.items()
        if any(found) and all(value is None or isinstance(value, str) for value in found)
    ]


def _first_of(names: Sequence[str], keys: Sequence[str]) -> str:
    return next((name for name in names if name in keys), "")


def _first_like(words: Sequence[str], keys: Sequence[str]) -> str:
    """Return the key that is one of the words, or else the first that holds one; '' if none."""
    same = [key for word in words for key in keys if word == key.lower()]
    return next(iter([*same, *(key for word in words for key in keys if word in key.lower())]), "")


def _advised_roles(values: Sequence[Any]) -> dict[str, str]:
    """Return a guess of who is who for names that are not known: the first to speak asks."""
    names = list(dict.fromkeys(value for value in values if isinstance(value, str)))[:4]
    if all(name.lower() in ROLE_NAMES for name in names):
        return {}
    named = {name: "assistant" for name in names if name.lower() in _ASSISTANTS}
    others = [name for name in names if name not in named]
    if not named and len(others) > 1:
        named[others.pop(1)] = "assistant"
    return {**dict.fromkeys(others, "user"), **named}


def _written(setting: str, pairs: Mapping[str, str]) -> tuple[str, str]:
    """Return pairs as an option and as a line of TOML."""
    option = quoted(",".join(f"{name}={value}" for name, value in pairs.items()))
    inside = ", ".join(f"{_toml_key(name)} = {_toml(value)}" for name, value in pairs.items())
    return f"--{setting.replace('_', '-')} {option}", f"{setting} = {{{inside}}}"


def _toml(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _toml_key(name: str) -> str:
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else _toml(name)
