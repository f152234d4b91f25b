"""The chat renderer: the records of a block to samples with the weight of every segment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tokmill.chat.records import RecordWriter
from tokmill.chat.reply_counts import reply_counts
from tokmill.chat.weights import segment_weights
from tokmill.values import WHOLE_RECORD, SampleBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokmill.chat.control_strings import Vocabulary
    from tokmill.chat.conversation import Conversation
    from tokmill.chat.records import Written
    from tokmill.chat.templates import ChatTemplate
    from tokmill.chat.weights import MaskRule
    from tokmill.settings.sft import SftSettings
    from tokmill.values import Records, Reject

    WriteRecords = Callable[[pa.LargeStringArray], Written]


class ChatRenderer:
    """Turns records into samples; threads may share one.

    `settings.schema`: a schema, `auto` resolved. `pooled`: returns the function that writes records
    one by one, perhaps in other processes, from the writer of this process; by default it is that
    writer's `write`.
    """

    schema = pa.schema([(WHOLE_RECORD, pa.large_string())])

    def __init__(
        self,
        settings: SftSettings,
        template: ChatTemplate,
        rule: MaskRule,
        vocabulary: Vocabulary,
        pooled: Callable[[RecordWriter], WriteRecords] | None = None,
    ) -> None:
        is_rendered = settings.schema == "text" and settings.rendered_text == "parse"
        self.name = f"{settings.schema} as {'it is' if is_rendered else template.name}"
        self._settings = settings
        self._rule = rule
        self.writer = RecordWriter(settings, template, rule, vocabulary)
        self.write = self.writer.write if pooled is None else pooled(self.writer)

    def render(self, records: Records) -> SampleBatch:
        """Return the samples of a block's records, in order."""
        text = records.batch.column(0)
        written = self.write(text)
        refused = [
            (row, records.reject(row, reason, message)) for row, reason, message in written.refused
        ]
        return self._samples(written, refused)

    def render_conversation(self, conversation: Conversation) -> SampleBatch:
        """Return the samples of one conversation."""
        return self._samples(self.writer.write_conversation(conversation), ())

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
                **reply_counts(columns, weights, self._rule, names_roles=names_roles),
            },
        )
