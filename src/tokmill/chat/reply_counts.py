"""What is noticed about trained replies: those that are empty, and ends of turn that nobody trains.

Both are counted, since neither shows in the ids: a model that is trained on empty replies learns to
say nothing, and one that never sees the end of its turn as a target does not stop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from tokmill.chat.segments import ROLES, Kind

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.chat.segments import Columns, SegmentTable
    from tokmill.chat.weights import MaskRule

EMPTY_REPLIES = "empty replies (only their end of turn is trained)"
UNENDED_REPLIES = "replies whose end of turn is not trained"

_SHORT = 8
"""Longer texts are taken for more than white space."""

_SAID, _ENDS = np.zeros((2, len(Kind)), bool)
_SAID[[Kind.CONTENT, Kind.REASONING, Kind.TOOL_CALL]] = True
_ENDS[[Kind.EOT, Kind.EOT_OUTSIDE, Kind.END]] = True


def notice(
    columns: Columns, weights: npt.NDArray[np.float32], rule: MaskRule
) -> dict[str, npt.NDArray[np.int64]]:
    """Return how many replies of each sample are to be shown, by what they are: (n_samples,).

    Only what occurs has an entry. Ends of turn are missed where the rule would train them.

    Args:
        columns: n segments.
        weights: (n,), the weight of each in the loss.
        rule: that of the weights.
    """
    table, is_trained = columns.table, weights > 0
    is_ended = _turns_of(table, is_trained & _ENDS[table.kinds])
    is_said = _said(columns, is_trained & _SAID[table.kinds] & (columns.ids < 0))
    is_reply = table.roles == ROLES.index("assistant")
    found = {EMPTY_REPLIES: is_reply & is_ended & ~is_said}
    if rule.trained[Kind.EOT]:
        found[UNENDED_REPLIES] = is_reply & is_said & ~is_ended
    n_samples = len(columns.offsets) - 1
    return {
        name: np.bincount(table.samples[which], minlength=n_samples)
        for name, which in found.items()
        if which.any()
    }


def _turns_of(table: SegmentTable, segments: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return which turns have one of the segments: (n_turns,)."""
    turns = np.zeros(len(table.roles), bool)
    turns[table.turns[segments]] = True
    return turns


def _said(columns: Columns, segments: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return which turns have more than white space in one of the segments: (n_turns,)."""
    lengths = pc.binary_length(columns.text).to_numpy()
    is_said = _turns_of(columns.table, segments & (lengths > _SHORT))
    short = np.flatnonzero(segments & (lengths <= _SHORT))
    short = short[~is_said[columns.table.turns[short]]]
    is_blank = pc.utf8_is_space(columns.text.take(short)).to_numpy(zero_copy_only=False)
    is_said[columns.table.turns[short[~is_blank]]] = True
    return is_said
