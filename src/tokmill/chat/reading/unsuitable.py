"""Records that are refused: preference data, and records with images, videos or audio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.chat.conversation import ChatError
from tokmill.chat.reading.names import (
    LABEL_KEY,
    MEDIA_KEYS,
    PREFERENCE_KEYS,
    ROLE_NAMES,
    given_fields,
    is_filled,
)
from tokmill.chat.reading.values import shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokmill.settings.sft import SftSettings

SUSPECT = frozenset((*PREFERENCE_KEYS, LABEL_KEY))
"""A record with none of these keys is no preference data."""

_KTO_LABELS = frozenset(
    (
        "true", "false", "0", "1", "0.0", "1.0", "good", "bad", "desirable", "undesirable",
        "thumbs_up", "thumbs_down", "thumbup", "thumbdown", "thumbsup", "thumbsdown", "up", "down",
        "upvote", "downvote", "like", "dislike", "liked", "disliked", "accept", "reject",
        "accepted", "rejected", "chosen", "preferred", "dispreferred", "👍", "👎",
    )
)  # fmt: skip


def preference(record: Mapping[str, Any], kind: str | None, settings: SftSettings) -> str:
    """Return why a record of schema `kind` is preference data; '' if it is none.

    With --fields messages=chosen the chosen answers are those to train on.
    """
    found = [
        key
        for key in PREFERENCE_KEYS
        if isinstance(value := record.get(key), str | list | dict)
        or (key == "kto_tag" and value is not None)
    ]
    if found and not SUSPECT.intersection(given_fields(settings.fields).values()):
        advice = _advice(record, kind, found)
        return f"preference data, found {found[0]}: expected one answer to train on: {advice}"
    if kind in (None, "text") or not _is_kto(record.get(LABEL_KEY)):
        return ""
    return (
        "preference data, found label of good and bad answers (KTO): expected answers to train on; "
        "keep the good ones and leave out label, or train all with --ignore-keys label"
    )


def _advice(record: Mapping[str, Any], kind: str | None, found: Sequence[str]) -> str:
    """Return the option with which a record that has preferences is trained on."""
    if kind is not None:  # an answer stands beside them
        return f"--ignore-keys {','.join(found)} trains on the rest of the record"
    chosen = record.get("chosen")
    if isinstance(chosen, dict) or "chosen" not in found:
        return "put it under completion, or at the end of messages"
    first = chosen[0] if isinstance(chosen, list) and chosen else None
    # A reply alone is the answer to a prompt; other messages are the whole chat.
    is_chat = isinstance(first, dict) and ROLE_NAMES.get(str(first.get("role"))) != "assistant"
    field = "messages" if is_chat else "completion"
    return f"--fields {field}=chosen trains on the chosen ones, and leaves the others out"


def has_other_labels(records: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a `label` is something else than good or bad, such as a class."""
    labels = [record.get(LABEL_KEY) for record in records]
    return any(is_filled(label) and not _is_kto(label) for label in labels)


def _is_kto(label: Any) -> bool:
    if not isinstance(label, str | int | float):
        return False
    return str(label).strip().lower().replace("-", "_").replace(" ", "_") in _KTO_LABELS


_MEDIA = frozenset(MEDIA_KEYS)


def check_media(item: Mapping[str, Any], where: str) -> None:
    """Refuse a record or message with media: a reply to an image makes no sense without it."""
    if _MEDIA.isdisjoint(item):
        return
    for key in MEDIA_KEYS:
        if is_filled(item.get(key)):
            raise ChatError(
                f"{key.removesuffix('s')}s",
                f"{where}: expected text alone, found {key}, {shown(item[key])}: "
                f"--ignore-keys {key} trains on the text as it stands",
            )
