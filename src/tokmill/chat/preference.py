"""Preference data: records that say which answers are good; not to be trained as they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.chat.keys import LABEL_KEY, PREFERENCE_KEYS, is_filled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SUSPECT = frozenset((*PREFERENCE_KEYS, LABEL_KEY))
"""A record without any of these keys is no preference data."""

_KTO_LABELS = frozenset(
    (
        "true", "false", "0", "1", "0.0", "1.0", "good", "bad", "desirable", "undesirable",
        "thumbs_up", "thumbs_down", "thumbup", "thumbdown", "thumbsup", "thumbsdown", "up", "down",
        "upvote", "downvote", "like", "dislike", "liked", "disliked", "accept", "reject",
        "accepted", "rejected", "chosen", "preferred", "dispreferred", "👍", "👎",
    )
)  # fmt: skip


def preference(record: Mapping[str, Any], kind: str | None) -> str:
    """Return why a record of a schema is preference data; '' if it is none."""
    for key in PREFERENCE_KEYS:
        value = record.get(key)
        if isinstance(value, str | list | dict) or (key == "kto_tag" and value is not None):
            return (
                f"preference data, found {key}: expected one answer to train on; "
                "put it under completion or at the end of messages, and leave out the others "
                f"(--ignore-keys {key})"
            )
    if kind in (None, "text") or not _is_kto(record.get(LABEL_KEY)):
        return ""
    return (
        "preference data, found label of good and bad answers (KTO): expected answers to train on; "
        "keep the good ones and leave out label, or train all with --ignore-keys label"
    )


def has_other_labels(records: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether `label` is something else than good or bad, such as a class or a number."""
    labels = [record.get(LABEL_KEY) for record in records]
    return any(is_filled(label) and not _is_kto(label) for label in labels)


def _is_kto(label: Any) -> bool:
    if not isinstance(label, str | int | float):
        return False
    return str(label).strip().lower().replace("-", "_").replace(" ", "_") in _KTO_LABELS
