"""Schemas: the shape of a record, and the conversation that is read from it.

A schema is one row of the table: its fields, its keys, its reader.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tokmill.chat.conversation import ChatError, Conversation
from tokmill.chat.jinja.variables import VARIABLES_KEY, read_variables
from tokmill.chat.reading.content import read_tools
from tokmill.chat.reading.instructions import (
    history_of,
    no_such_fields,
    read_alpaca,
    read_pair,
    read_text,
    system_of,
)
from tokmill.chat.reading.messages import message_list, read_messages
from tokmill.chat.reading.names import (
    ANSWER_KEYS,
    HISTORY_KEYS,
    INPUT_KEYS,
    MEDIA_KEYS,
    PROMPT_KEYS,
    REASONING_KEYS,
    SYSTEM_KEYS,
    TURN_KEYS,
    WEIGHT_KEYS,
    given_fields,
    of_record,
)
from tokmill.chat.reading.unread import unread_in_messages, unread_in_record
from tokmill.chat.reading.unsuitable import SUSPECT, check_media, preference
from tokmill.chat.reading.values import filled_key, first_present, parse_json, wrong_type
from tokmill.chat.weights import NOT_TRAINED, prompt_weights, times_record_weight

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tokmill.settings.sft import SftSettings

    Reader = Callable[[Mapping[str, Any], SftSettings], Conversation]

MIXED = "mixed"

_BESIDE = frozenset((*SYSTEM_KEYS, *HISTORY_KEYS))
_SPECIAL = SUSPECT.union(MEDIA_KEYS, WEIGHT_KEYS, (VARIABLES_KEY,))
"""Nearly all records have none of these keys, and need none of their checks."""

_SYSTEM_ROLES = ("system", "developer")


def parse_record(text: str) -> dict[str, Any]:
    """Return the object of a line of JSON."""
    record = parse_json(text, "malformed JSON", "record")
    if not isinstance(record, dict):
        raise wrong_type("record", "an object", record)
    return record


def read_conversation(
    record: Mapping[str, Any], schema: str, settings: SftSettings
) -> Conversation:
    """Return the conversation of a record; `schema`: one of the table or "mixed".

    Takes about 1 µs per message, and 1 µs per record.
    """
    given = record
    if settings.ignore_keys or settings.fields:
        record = of_record(record, settings)
    is_special = not _SPECIAL.isdisjoint(record)
    if is_special:
        if reason := preference(record, recognise(record), settings):
            raise ChatError("preference data", f"record: {reason}")
        check_media(record, "record")
    name = recognise(record) if schema == MIXED else schema
    if name is None:
        raise no_such_fields("the fields of a schema", record)
    try:
        conversation = _TABLE[name].read(record, settings)
    except ChatError as error:
        raise _of_other_schema(record, name, error) from None
    if is_special:
        if record.get(VARIABLES_KEY) is not None:
            conversation.variables = read_variables(record)
        conversation.weights = times_record_weight(
            record, conversation.messages, conversation.weights, settings
        )
    unread = unread_in_record(given, record, name, settings)
    if conversation.unread or settings.fields:
        unread = tuple(sorted({*unread, *conversation.unread}))
    conversation.unread = unread
    return conversation


def _of_other_schema(record: Mapping[str, Any], name: str, error: ChatError) -> ChatError:
    """Add the schema that a record does fit to the error about missing fields."""
    other = recognise(record)
    if error.reason != "no such fields" or other in (None, name):
        return error
    return ChatError(
        error.reason,
        f"{error.message}: a record of schema {other} among those of {name}: use --schema mixed",
    )


def recognise(record: Mapping[str, Any]) -> str | None:
    """Return the first schema of the table whose fields a record has; None if there is none.

    Columnar files fill absent fields with null, so that null counts as absent. Only if nothing else
    fits, a null prompt is an empty one.
    """
    name = next((name for name, schema in _TABLE.items() if schema.fits(record)), None)
    if name is None and _has_turns(record):
        return "messages"
    if name in (None, "text") and first_present(record, ANSWER_KEYS) is not None:
        for empty in ("prompt", "alpaca"):
            if any(key in record for key in _TABLE[empty].keys[0]):
                return empty
    return name


def _has_turns(record: Mapping[str, Any]) -> bool:
    """Return whether a record has turns under another name, and no half of a sample beside them."""
    turns = first_present(record, TURN_KEYS)
    are_turns = bool(turns) and isinstance(turns, list) and all(type(t) is dict for t in turns)
    are_turns |= isinstance(turns, str) and turns.lstrip().startswith("[{")
    return are_turns and not filled_key(record, (*PROMPT_KEYS, *ANSWER_KEYS, "instruction"))


def _read_dialog(key: str, record: Mapping[str, Any], settings: SftSettings) -> Conversation:
    if key == "messages":
        key = filled_key(record, TURN_KEYS) or key
    if record.get(key) is None:
        raise no_such_fields(key, record)
    items = message_list(record[key], key)
    messages, weights, parts = read_messages(items, settings)
    tools = read_tools(record, items[0] if items else None)
    unread = unread_in_messages(items, key, settings)
    dialog = Conversation(messages, weights, tools, unread, parts=parts)
    return _with_beside(dialog, record, settings)


def _read_prompt(record: Mapping[str, Any], settings: SftSettings) -> Conversation:
    """Return a prompt and its completion, texts or lists of messages."""
    prompt, answer = (first_present(record, keys) for keys in (PROMPT_KEYS, ANSWER_KEYS))
    if not isinstance(prompt, list) and not isinstance(answer, list):
        return read_pair(record, settings)
    if answer is None:
        raise no_such_fields(" or ".join(ANSWER_KEYS), record)
    asked = [] if prompt is None else prompt
    for where, items in (("prompt", asked), ("completion", answer)):
        if not isinstance(items, list):
            raise wrong_type(where, "a list of messages, as the other is one", items)
    messages, given, weighed = read_messages(asked, settings, "prompt message")
    not_trained = prompt_weights([*given, *(part.factor for part in weighed)])[: len(given)]
    replies, weights, parts = read_messages(answer, settings, "completion message")
    tools = read_tools(record, (asked or answer or [None])[0])
    unread = [
        *filter(None, (filled_key(record, keys) for keys in (INPUT_KEYS, REASONING_KEYS))),
        *unread_in_messages(asked, "prompt", settings),
        *unread_in_messages(answer, "completion", settings),
    ]
    dialog = Conversation(
        messages + replies, not_trained + weights, tools, tuple(unread), parts=parts
    )
    return _with_beside(dialog, record, settings, NOT_TRAINED)


def _with_beside(
    dialog: Conversation,
    record: Mapping[str, Any],
    settings: SftSettings,
    weight: float | None = None,
) -> Conversation:
    """Insert the record's history, and its system message unless the turns have one.

    `weight`: of the inserted messages, None for the history's own.
    """
    messages, weights = dialog.messages, dialog.weights
    if not messages:
        raise ChatError("empty conversation", "record: expected messages, found an empty list")
    if _BESIDE.isdisjoint(record):
        return dialog
    history = history_of(record, settings)
    if history.messages:
        start = int(messages[0]["role"] in _SYSTEM_ROLES)
        messages[start:start] = history.messages
        n = len(history.messages)
        weights[start:start] = history.weights if weight is None else [weight] * n
        dialog.parts = [*history.parts, *dialog.parts]
    system = system_of(record)
    own = [m["content"] for m in messages if m["role"] in _SYSTEM_ROLES]
    if system and not own:
        messages.insert(0, system[0])
        weights.insert(0, weight)
    elif system and system[0]["content"] not in own:
        key = given_fields(settings.fields).get("system", filled_key(record, SYSTEM_KEYS))
        dialog.unread = (*dialog.unread, key)
    return dialog


@dataclass(frozen=True, slots=True)
class _Schema:
    """A schema: its fields in words, groups of keys of which it needs one each, its reader."""

    fields: str
    keys: tuple[tuple[str, ...], ...]
    read: Reader

    def fits(self, record: Mapping[str, Any]) -> bool:
        return all(first_present(record, keys) is not None for keys in self.keys)


_TABLE = {
    "messages": _Schema("messages", (("messages",),), partial(_read_dialog, "messages")),
    "conversations": _Schema(
        "conversations", (("conversations",),), partial(_read_dialog, "conversations")
    ),
    "prompt": _Schema(
        f"{' | '.join(PROMPT_KEYS)} and {' | '.join(ANSWER_KEYS)}",
        (PROMPT_KEYS, ANSWER_KEYS), _read_prompt,
    ),
    "alpaca": _Schema(
        "instruction and output", (("instruction",), ANSWER_KEYS), read_alpaca
    ),
    "text": _Schema("text", (("text",),), read_text),
}  # fmt: skip

FIELDS_BY_SCHEMA = {name: schema.fields for name, schema in _TABLE.items()}
"""The fields of each schema, in words."""
