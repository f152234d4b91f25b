"""The chat renderer: the records of a block to samples with the weight of every segment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tokmill.chat.reply_counts import reply_counts
from tokmill.chat.weights import segment_weights
from tokmill.errors import TemplateLimitError
from tokmill.values import WHOLE_RECORD, SampleBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokmill.chat.conversation import Conversation
    from tokmill.chat.records import Written
    from tokmill.chat.weights import MaskRule
    from tokmill.settings.sft import SftSettings
    from tokmill.values import Records, Reject

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
                **reply_counts(columns, weights, self._rule, names_roles=names_roles),
            },
        )
