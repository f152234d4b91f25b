"""The chat renderer: the records of a block to samples with the weight of every segment.

It also counts replies that look wrong: empty, without an end, or before anything was asked. None of
them shows in the ids. A model trained on empty replies learns to say nothing, and a model that
never sees the end of its turn as a target does not stop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokmill.chat.segments import ENDS, ROLES, Kind
from tokmill.chat.weights import segment_weights
from tokmill.errors import TemplateLimitError
from tokmill.offsets import starts_run
from tokmill.values import WHOLE_RECORD, SampleBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from tokmill.chat.conversation import Conversation
    from tokmill.chat.records import Written
    from tokmill.chat.segments import Columns, SegmentTable
    from tokmill.chat.weights import MaskRule
    from tokmill.settings.sft import SftSettings
    from tokmill.values import Records, Reject

EMPTY_REPLIES = "empty replies (only their end of turn is trained)"
UNENDED_REPLIES = "replies whose end of turn is not trained"
ASSISTANT_FIRST = "chats that begin with the assistant: are --role-names right?"

_SHORT = 8
"""Bytes; longer texts are assumed to hold more than white space."""

_SPOKEN, _ENDS = np.zeros((2, len(Kind)), bool)
_SPOKEN[[Kind.CONTENT, Kind.REASONING, Kind.TOOL_CALL]] = True
_ENDS[list(ENDS)] = True

_SHOWN_BYTES = 80


class ChatRenderer:
    """Turns records into samples; threads may share one.

    `settings.schema`: a schema, `auto` resolved. `template`: its name. `write`: returns the
    segments of a column of records or of one conversation, see `worker.Writers`.
    """

    schema = pa.schema([(WHOLE_RECORD, pa.large_string())])

    def __init__(
        self,
        settings: SftSettings,
        template: str,
        rule: MaskRule,
        write: Callable[[pa.LargeStringArray | Conversation], Written],
    ) -> None:
        is_rendered = settings.schema == "text" and settings.rendered_text == "parse"
        self.name = f"{settings.schema} as {'it is' if is_rendered else template}"
        self._settings = settings
        self._rule = rule
        self._write = write

    def render(self, records: Records) -> SampleBatch:
        """Return the samples of a block's records, in order.

        Raises:
            TemplateLimitError: a record took too much of a template's time or memory.
        """
        try:
            written = self._write(records.batch.column(0))
        except TemplateLimitError as error:
            if error.row is None:
                raise
            beginning = records.raw(error.row)[:_SHOWN_BYTES].decode(errors="replace")
            raise TemplateLimitError(f"{error}, which begins {beginning!r}") from None
        refused = [
            (row, records.reject(row, reason, message)) for row, reason, message in written.refused
        ]
        return self._samples(written, refused)

    def render_conversation(self, conversation: Conversation) -> SampleBatch:
        """Return the samples of one conversation; raises `ChatError` if it has none."""
        return self._samples(self._write(conversation), ())

    def _samples(self, written: Written, refused: Sequence[tuple[int, Reject]]) -> SampleBatch:
        columns = written.columns
        weights, turn_ends = segment_weights(columns.table, self._rule)
        names_roles = bool(self._settings.role_names)
        return SampleBatch(
            columns.text,
            columns.offsets,
            columns.ids,
            weights,
            turn_ends,
            written.rows,
            refused,
            {reason: np.array(rows, np.int64) for reason, rows in written.drops.items()},
            written.unread,
            {
                **written.noticed,
                **_reply_counts(columns, weights, self._rule, names_roles=names_roles),
            },
        )


def _reply_counts(
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
