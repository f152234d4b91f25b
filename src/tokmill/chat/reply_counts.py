"""Counts of replies that look wrong: empty, without an end, or before anything was asked.

None of them shows in the ids. A model trained on empty replies learns to say nothing, and a model
that never sees the end of its turn as a target does not stop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from tokmill.chat.segments import ENDS, ROLES, Kind
from tokmill.offsets import starts_run

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.chat.segments import Columns, SegmentTable
    from tokmill.chat.weights import MaskRule

EMPTY_REPLIES = "empty replies (only their end of turn is trained)"
UNENDED_REPLIES = "replies whose end of turn is not trained"
ASSISTANT_FIRST = "chats that begin with the assistant: are --role-names right?"

_SHORT = 8
"""Bytes; longer texts are assumed to hold more than white space."""

_SPOKEN, _ENDS = np.zeros((2, len(Kind)), bool)
_SPOKEN[[Kind.CONTENT, Kind.REASONING, Kind.TOOL_CALL]] = True
_ENDS[list(ENDS)] = True


def reply_counts(
    columns: Columns, weights: npt.NDArray[np.float32], rule: MaskRule, *, names_roles: bool
) -> dict[str, npt.NDArray[np.int64]]:
    """Return how many such replies each sample has, (n_samples,) by name; only if any.

    `weights`: (n_segments,), by `rule`. A missing end of turn counts only if the rule trains ends.
    `names_roles`: the settings name roles, so that chats may begin with a system prompt as a reply.
    """
    table, is_trained = columns.table, weights > 0
    is_ended = _turns_of(table, is_trained & _ENDS[table.kinds])
    is_said = _not_blank(columns, is_trained & _SPOKEN[table.kinds] & (columns.ids < 0))
    is_reply = table.roles == ROLES.index("assistant")
    found = {EMPTY_REPLIES: is_reply & is_ended & ~is_said}
    if rule.trained[Kind.EOT]:
        found[UNENDED_REPLIES] = is_reply & is_said & ~is_ended
    if names_roles:
        spoken = np.flatnonzero(table.roles != ROLES.index("system"))
        is_first = np.zeros(len(table.roles), bool)
        is_first[spoken[starts_run(table.samples[spoken])]] = True
        found[ASSISTANT_FIRST] = is_reply & is_first
    n_samples = len(columns.offsets) - 1
    return {
        name: np.bincount(table.samples[turns], minlength=n_samples)
        for name, turns in found.items()
        if turns.any()
    }


def _turns_of(table: SegmentTable, segments: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return which turns hold one of the segments: (n_turns,)."""
    turns = np.zeros(len(table.roles), bool)
    turns[table.turns[segments]] = True
    return turns


def _not_blank(columns: Columns, segments: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return which turns hold more than white space in one of the segments: (n_turns,)."""
    lengths = pc.binary_length(columns.text).to_numpy()
    is_said = _turns_of(columns.table, segments & (lengths > _SHORT))
    short = np.flatnonzero(segments & (lengths <= _SHORT))
    short = short[~is_said[columns.table.turns[short]]]
    is_blank = pc.utf8_is_space(columns.text.take(short)).to_numpy(zero_copy_only=False)
    is_said[columns.table.turns[short[~is_blank]]] = True
    return is_said
