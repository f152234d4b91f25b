"""Names that the settings give: which key is which field, and who speaks under which role."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tokmill.chat.keys import (
    ANSWER_KEYS,
    INPUT_KEYS,
    PROMPT_KEYS,
    REASONING_KEYS,
    SYSTEM_KEYS,
    TOOL_KEYS,
)
from tokmill.chat.segments import ROLES
from tokmill.errors import UsageError
from tokmill.settings.names import flag

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokmill.settings.schema import SftSettings

CALL_ROLE = "function_call"
"""ShareGPT's role of an assistant turn whose value is the call."""

ROLE_NAMES = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "human": "user",
    **dict.fromkeys(("assistant", "gpt", "model", "chatgpt", "bing", "bard"), "assistant"),
    **dict.fromkeys(("tool", "function", "observation", "ipython", "function_response"), "tool"),
    CALL_ROLE: CALL_ROLE,
}
"""The role of everybody who speaks under a name that is known; matched without case."""

_OF_RECORD = {
    "messages": "messages",
    "prompt": PROMPT_KEYS[0],
    "completion": ANSWER_KEYS[0],
    "instruction": "instruction",
    "input": INPUT_KEYS[0],
    "output": ANSWER_KEYS[0],
    "system": SYSTEM_KEYS[0],
    "history": "history",
    "tools": TOOL_KEYS[0],
    "text": "text",
    "reasoning": REASONING_KEYS[0],
}
_OF_MESSAGE = {
    "role": "role",
    "content": "content",
    "reasoning": REASONING_KEYS[0],
    "tool_calls": "tool_calls",
}
"""The key that the reader looks for first, by the field that a setting names."""

_FIELDS = tuple(dict.fromkeys((*_OF_RECORD, *_OF_MESSAGE)))


@lru_cache(maxsize=64)
def given_fields(pairs: tuple[str, ...]) -> Mapping[str, str]:
    """Return the record's key of each field that `sft.fields` names.

    Raises:
        UsageError: one is no field.
    """
    return dict(_pair(pair, "fields", "role=speaker") for pair in pairs)


@lru_cache(maxsize=64)
def record_names(pairs: tuple[str, ...]) -> Mapping[str, str]:
    """Return the name by which a record's key is read, for the keys that `sft.fields` names."""
    fields = given_fields(pairs)
    return {key: _OF_RECORD[field] for field, key in fields.items() if field in _OF_RECORD}


@lru_cache(maxsize=64)
def message_names(pairs: tuple[str, ...]) -> Mapping[str, str]:
    """Return the name by which a message's key is read, for the keys that `sft.fields` names."""
    fields = given_fields(pairs)
    return {key: _OF_MESSAGE[field] for field, key in fields.items() if field in _OF_MESSAGE}


@lru_cache(maxsize=64)
def known_roles(pairs: tuple[str, ...]) -> Mapping[str, str]:
    """Return the role of each name, as it is usually written; `role_of` takes it in any case."""
    named = dict(_pair(pair, "role_names", "bot=assistant") for pair in pairs)
    lower = ROLE_NAMES | {name.lower(): role for name, role in named.items()}
    spelled = {spell(name): role for name, role in lower.items() for spell in _SPELLINGS}
    return {**spelled, **lower}


def role_of(said: str, settings: SftSettings) -> str | None:
    """Return the role of who speaks under a name, `function_call` for a call, None if unknown."""
    known = known_roles(settings.role_names)
    return known.get(said) or known.get(said.strip().lower())


def check_names(settings: SftSettings) -> None:
    """Make sure that the names given are pairs of what they must be; raises `UsageError`."""
    for field in given_fields(settings.fields):
        if field not in _FIELDS:
            raise UsageError(
                f"--fields: expected a field of {', '.join(_FIELDS)}, found {field!r}: write "
                "FIELD=KEY, such as role=speaker"
            )
    for pair in settings.role_names:
        name, role = _pair(pair, "role_names", "bot=assistant")
        if role not in (*ROLES, CALL_ROLE):
            raise UsageError(
                f"--role-names: {name}: expected a role of {', '.join((*ROLES, CALL_ROLE))}, "
                f"found {role!r}: write NAME=ROLE, such as bot=assistant"
            )


_SPELLINGS = (str.upper, str.capitalize)


def _pair(text: str, setting: str, example: str) -> tuple[str, str]:
    first, equals, second = text.partition("=") if setting == "fields" else text.rpartition("=")
    if not (equals and first.strip() and second.strip()):
        raise UsageError(
            f"{flag('sft', setting)}: expected pairs such as {example}, found {text!r}"
        )
    return first.strip(), second.strip()
