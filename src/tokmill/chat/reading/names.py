"""Names in records: keys and roles that are known, and those that the settings give."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tokmill.chat.segments import ROLES
from tokmill.errors import UsageError
from tokmill.settings.names import flag

if TYPE_CHECKING:
    from tokmill.settings.sft import SftSettings

PROMPT_KEYS = ("prompt", "question", "query")
ANSWER_KEYS = ("response", "completion", "answer", "output")
INPUT_KEYS = ("input", "context")
SYSTEM_KEYS = ("system", "system_prompt", "system_message")
TOOL_KEYS = (
    "tools", "functions", "available_tools", "tool_definitions", "function_definitions",
    "available_functions", "tools_list", "tool_list",
)  # fmt: skip
REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")
HISTORY_KEYS = ("history",)
"""Names of one field each: the first that is filled is it."""

WEIGHT_KEYS = ("weight", "loss_weight")
VARIABLE_KEYS = ("chat_template_kwargs",)
"""Variables for the template, under the name that TRL has for them."""

CALL_KEYS = ("tool_calls", "function_call")
SWITCH_KEYS = ("train", "training", "weight", "loss_weight", "loss_mask", "masked")
MEDIA_KEYS = ("images", "image", "videos", "video", "audios", "audio")
PREFERENCE_KEYS = ("chosen", "rejected", "rejected_response", "rejected_messages", "kto_tag")
LABEL_KEY = "label"

_BESIDE = (SYSTEM_KEYS, TOOL_KEYS, HISTORY_KEYS, WEIGHT_KEYS, VARIABLE_KEYS)
_FLAT = (INPUT_KEYS, ANSWER_KEYS, REASONING_KEYS, *_BESIDE)
READ_BY_SCHEMA: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "messages": (("messages",), *_BESIDE),
    "conversations": (("conversations",), *_BESIDE),
    "prompt": (PROMPT_KEYS, *_FLAT),
    "alpaca": (("instruction",), *_FLAT),
    "text": (("text",), WEIGHT_KEYS, VARIABLE_KEYS),
}
"""What each schema reads of a record: of every group the first key that is filled."""


def meaningful_keys(schema: str) -> frozenset[str]:
    """Return all keys that may change what a record of a schema becomes."""
    groups = (*READ_BY_SCHEMA[schema], MEDIA_KEYS, PREFERENCE_KEYS, (LABEL_KEY, "instruction"))
    return frozenset(key for group in groups for key in group)


def is_filled(value: Any) -> bool:
    """Return whether a value says something: null, an empty text and an empty list do not."""
    return bool(value) or not (value is None or value == "" or value == [])


def is_refusal(item: Mapping[str, Any]) -> bool:
    """Return whether a message says nothing but its refusal, as OpenAI's may."""
    filled = (is_filled(item.get(key)) for key in ("content", "value", *CALL_KEYS))
    return is_filled(item.get("refusal")) and not any(filled)


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
    """Check that the names given are pairs of what they must be; raises `UsageError`."""
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
