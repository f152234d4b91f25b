"""Preference data: records with several answers to choose from, or an opinion on one.

A record of them stops the run: the message names the option that trains on the chosen answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.chat.conversation import ChatError
from tokmill.chat.names import (
    LABEL_KEY,
    PREFERENCE_KEYS,
    PROMPT_KEYS,
    RATING_KEY,
    ROLE_KEYS,
    ROLE_NAMES,
    TURN_KEYS,
    filled_key,
    first_present,
    given_fields,
    rating,
)
from tokmill.chat.reading.messages import message_list

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokmill.settings.sft import SftSettings

SUSPECT = frozenset((*PREFERENCE_KEYS, LABEL_KEY))
"""A record with none of these keys is no preference data."""


def preference(record: Mapping[str, Any], kind: str | None, settings: SftSettings) -> str:
    """Return why a record of schema `kind` is preference data; '' if it is none.

    With --fields messages=chosen the chosen answers are those to train on.
    """
    keys = [
        key
        for key in PREFERENCE_KEYS
        if isinstance(value := record.get(key), str | list | dict)
        or (key == RATING_KEY and value is not None)
    ]
    if keys and not SUSPECT.intersection(given_fields(settings.fields).values()):
        advice = _advice(record, kind, keys)
        return f"preference data, found {keys[0]}: expected one answer to train on: {advice}"
    if kind in (None, "text") or rating(record.get(LABEL_KEY)) is None:
        return ""
    return (
        "preference data, found label of good and bad answers (KTO): expected answers to train on: "
        f"--ignore-keys={LABEL_KEY} if it says something else, or {_by_rating(LABEL_KEY)}"
    )


def _by_rating(key: str) -> str:
    """Return the option with which records that rate their own answers are trained on."""
    return f"--fields=weight={key} trains on the good ones, and leaves the others out"


def _advice(record: Mapping[str, Any], kind: str | None, keys: Sequence[str]) -> str:
    """Return the option with which a record that has preferences is trained on."""
    if keys == [RATING_KEY]:
        return _by_rating(RATING_KEY)
    turns = ""
    if kind in ("messages", "conversations"):
        turns = filled_key(record, (*TURN_KEYS, "conversations"))
    asks = turns != "" and not _is_answered(record[turns], turns)
    if kind is not None and not (asks and "chosen" in keys):  # an answer stands beside them
        return f"--ignore-keys={','.join(keys)} trains on the rest of the record"
    prompt = filled_key(record, (*PROMPT_KEYS, "instruction"))
    fields = _fields_of_chosen(record.get("chosen"), turns if asks else "", prompt)
    if not fields:
        return "put it under completion, or at the end of messages"
    return f"--fields={fields} trains on the chosen ones, and leaves the others out"


def _fields_of_chosen(chosen: Any, turns: str, prompt: str) -> str:
    """Return the fields to name for an answer under chosen; '' if it answers nothing there.

    `turns`, `prompt`: the keys of a chat or of a text that asks for it, '' for none.
    """
    if chosen is None:
        return ""
    first = chosen[0] if isinstance(chosen, list) and chosen else chosen
    if isinstance(first, dict):
        # A reply alone is the answer to a prompt; other messages are the whole chat.
        if ROLE_NAMES.get(str(first_present(first, ROLE_KEYS))) != "assistant":
            return "messages=chosen"
        if not (turns or prompt):
            return ""
    if turns:
        return f"prompt={turns},completion=chosen"
    return "completion=chosen" if prompt else "text=chosen"  # a whole chat as one text


def _is_answered(turns: Any, where: str) -> bool:
    """Return whether the last message of a chat is the assistant's."""
    try:
        items = message_list(turns, where)
    except ChatError:
        return True
    last = items[-1] if items else None
    name = first_present(last, ROLE_KEYS) if isinstance(last, dict) else None
    return ROLE_NAMES.get(str(name).lower()) not in ("user", "tool")
