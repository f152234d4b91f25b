"""Schemas: which shape a record has, and the conversation that it stands for.

A shape is one line of the table: its fields, how it is recognised, how it is read.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from tokmill.errors import UsageError
from tokmill.render.chat.conversation import ChatError, Conversation
from tokmill.render.chat.flat import (
    ANSWER_KEYS,
    PROMPT_KEYS,
    no_such_fields,
    read_alpaca,
    read_pair,
    read_text,
)
from tokmill.render.chat.messages import message_list, read_messages
from tokmill.render.chat.switches import weigh_sample
from tokmill.render.chat.tools import read_tools
from tokmill.render.chat.values import (
    first_present,
    parse_json,
    shown_keys,
    system_of,
    wrong_type,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tokmill.config import SftSettings

    Reader = Callable[[Mapping[str, Any], SftSettings], Conversation]

MIXED = "mixed"

_PREFERENCE = ("chosen", "rejected", "rejected_response", "rejected_messages", "kto_tag")
_SUSPECT = frozenset((*_PREFERENCE, "label"))
_KTO_LABELS = ("true", "false", "0", "1")


def parse_record(text: str) -> dict[str, Any]:
    """Give the object that a line of JSON stands for.

    Raises:
        ChatError: "malformed JSON", "wrong type" where it is no object, or "lone surrogate" where
            a string or key in it cannot be UTF-8.
    """
    record = parse_json(text, "malformed JSON", "record")
    if not isinstance(record, dict):
        raise wrong_type("record", "an object", record)
    return record


def detect_schema(records: Sequence[Mapping[str, Any]], where: str = "records") -> str:
    """Give the schema of the first records: one of the table's, or "mixed" for several kinds.

    Records of no known shape do not count as long as others have one: they are refused when read.
    No records at all are "messages".

    Raises:
        UsageError: no record has a known shape, or one is preference data.
    """
    kinds = [_recognise(record) for record in records]
    for record, kind in zip(records, kinds, strict=True):
        if reason := _preference(record, kind):
            raise UsageError(f"{where}: {reason}")
    found = {kind for kind in kinds if kind}
    if records and not found:
        keys = list(dict.fromkeys(key for record in records for key in record))
        known = "; ".join(f"{name}: {schema.fields}" for name, schema in _TABLE.items())
        raise UsageError(
            f"{where}: no known schema: found {shown_keys(keys)}; known: {known}: rename the fields"
        )
    return "messages" if not records else found.pop() if len(found) == 1 else MIXED


def read_conversation(
    record: Mapping[str, Any], schema: str, settings: SftSettings
) -> Conversation:
    """Give the conversation of a record, whose schema is one of the table's or "mixed".

    Costs about 1 µs a message, plus as much for the record.

    Raises:
        ChatError: the record cannot become a sample; its reason is short and stable.
    """
    if not _SUSPECT.isdisjoint(record) and (reason := _preference(record, _recognise(record))):
        raise ChatError("preference data", f"record: {reason}")
    name = _recognise(record) if schema == MIXED else schema
    if name is None:
        raise no_such_fields("the fields of a schema", record)
    try:
        conversation = _TABLE[name].read(record, settings)
    except ChatError as error:
        raise _of_other_schema(record, name, error) from None
    weights = weigh_sample(record, conversation.messages, conversation.weights, settings)
    if weights is conversation.weights:
        return conversation
    return dataclasses.replace(conversation, weights=weights)


def _of_other_schema(record: Mapping[str, Any], name: str, error: ChatError) -> ChatError:
    """Give the error of a record that lacks a schema's fields, and what to do if it has another."""
    other = _recognise(record)
    if error.reason != "no such fields" or other in (None, name):
        return error
    return ChatError(
        error.reason,
        f"{error.message}: a record of schema {other} among those of {name}: use --schema mixed",
    )


def _recognise(record: Mapping[str, Any]) -> str | None:
    """Give the schema whose fields a record has, first of the table wins.

    Null says nothing, as columnar files fill up with it; only where nothing else fits is a null
    prompt an empty one.
    """
    name = next((name for name, schema in _TABLE.items() if schema.fits(record)), None)
    if name in (None, "text") and first_present(record, ANSWER_KEYS) is not None:
        for empty in ("prompt", "alpaca"):
            if any(key in record for key in _TABLE[empty].keys[0]):
                return empty
    return name


def _preference(record: Mapping[str, Any], kind: str | None) -> str:
    """Say why a record is preference data; '' if it is none."""
    for key in _PREFERENCE:
        value = record.get(key)
        if isinstance(value, str | list | dict) or (key == "kto_tag" and value is not None):
            return (
                f"preference data, found {key}: expected one answer to train on; "
                "put it under completion or at the end of messages, and leave out the others"
            )
    label = record.get("label")
    is_kto = isinstance(label, str | int) and str(label).lower() in _KTO_LABELS
    if not is_kto or kind in (None, "text"):
        return ""
    return (
        "preference data, found label of good and bad answers (KTO): expected answers to train on; "
        "keep the good ones and leave out label"
    )


def _read_messages(record: Mapping[str, Any], settings: SftSettings) -> Conversation:
    return _read_dialog(record, "messages", settings)


def _read_conversations(record: Mapping[str, Any], settings: SftSettings) -> Conversation:
    return _read_dialog(record, "conversations", settings)


def _read_dialog(record: Mapping[str, Any], key: str, settings: SftSettings) -> Conversation:
    if record.get(key) is None:
        raise no_such_fields(key, record)
    items = message_list(record[key], key)
    messages, weights = read_messages(items, settings)
    dialog = Conversation(messages, weights, read_tools(record, items[0] if items else None))
    return _with_system(dialog, record, None)


def _read_prompt(record: Mapping[str, Any], settings: SftSettings) -> Conversation:
    """Read prompt and completion: texts, or lists of messages; the prompt's are not trained."""
    prompt, answer = (first_present(record, keys) for keys in (PROMPT_KEYS, ANSWER_KEYS))
    if not isinstance(prompt, list) and not isinstance(answer, list):
        return read_pair(record, settings)
    if answer is None:
        raise no_such_fields(" or ".join(ANSWER_KEYS), record)
    asked, told = [] if prompt is None else prompt, answer
    for where, items in (("prompt", asked), ("completion", told)):
        if not isinstance(items, list):
            raise wrong_type(where, "a list of messages, as the other is one", items)
    messages, said = read_messages(asked, settings, "prompt message")
    if trained := [i for i, weight in enumerate(said, 1) if weight]:
        raise ChatError(
            "contradictory weights",
            f"prompt message {trained[0]}: expected no weight in a prompt, which is not trained, "
            f"found {said[trained[0] - 1]}",
        )
    replies, weights = read_messages(told, settings, "completion message")
    tools = read_tools(record, (asked or told or [None])[0])
    dialog = Conversation(messages + replies, [*[0.0] * len(messages), *weights], tools)
    return _with_system(dialog, record, 0.0)


def _with_system(
    dialog: Conversation, record: Mapping[str, Any], weight: float | None
) -> Conversation:
    """Put the record's own system message first if there is none.

    Raises:
        ChatError: "empty conversation".
    """
    if not dialog.messages:
        raise ChatError("empty conversation", "record: expected messages, found an empty list")
    system = system_of(record)
    if system and not any(m["role"] in ("system", "developer") for m in dialog.messages):
        dialog.messages.insert(0, {"role": "system", "content": system})
        dialog.weights.insert(0, weight)
    return dialog


@dataclasses.dataclass(frozen=True, slots=True)
class _Schema:
    """A shape: its fields in words, the keys of which it needs one each, and its reader."""

    fields: str
    keys: tuple[tuple[str, ...], ...]
    read: Reader

    def fits(self, record: Mapping[str, Any]) -> bool:
        return all(first_present(record, keys) is not None for keys in self.keys)


_TABLE = {
    "messages": _Schema("messages", (("messages",),), _read_messages),
    "conversations": _Schema("conversations", (("conversations",),), _read_conversations),
    "prompt": _Schema(
        f"{' | '.join(PROMPT_KEYS)} and {' | '.join(ANSWER_KEYS)}",
        (PROMPT_KEYS, ANSWER_KEYS), _read_prompt,
    ),
    "alpaca": _Schema(
        "instruction and output", (("instruction",), ANSWER_KEYS), read_alpaca
    ),
    "text": _Schema("text", (("text",),), read_text),
}  # fmt: skip
