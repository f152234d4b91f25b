"""The chat renderer: the records of a block to samples with the weight of every segment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tokmill.chat.column_writer import ColumnarWriter
from tokmill.chat.control_strings import RENDERED_TEXTS, holds, patterns
from tokmill.chat.learned.merging import merged, placed
from tokmill.chat.learned.writer import learned_writer
from tokmill.chat.reading.columns import plain_rows, read_regular
from tokmill.chat.records import RecordWriter, Written
from tokmill.chat.reply_counts import reply_counts
from tokmill.chat.weights import segment_weights
from tokmill.values import WHOLE_RECORD, SampleBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokmill.chat.control_strings import Vocabulary
    from tokmill.chat.conversation import Conversation
    from tokmill.chat.learned.writer import LearnedWriter
    from tokmill.chat.reading.columns import Regular
    from tokmill.chat.templates import ChatTemplate
    from tokmill.chat.weights import MaskRule
    from tokmill.settings.sft import SftSettings
    from tokmill.values import Records, Reject

    WriteRecords = Callable[[pa.LargeStringArray], Written]

_MOST_SKIPPED = 64
"""At most so many blocks are skipped before the fast path is tried again."""


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
        self._inline = patterns(self.writer.forms.closing_tags)
        self._columnar = ColumnarWriter(template, vocabulary.control)
        self._learned = learned_writer(settings, template, self.writer, vocabulary)
        self._is_columnar = self._learned is not None or rule.append_eos == "no"
        self._n_blocks = self._next_try = self._n_failed = 0

    def render(self, records: Records) -> SampleBatch:
        """Return the samples of a block's records, in order."""
        text = records.batch.column(0)
        written = self._regular_samples(text) or self.write(text)
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

    def _regular_samples(self, text: pa.LargeStringArray) -> Written | None:
        """Return the samples of a regular block; None if it is not, or if the try is skipped.

        After blocks that were not regular, some blocks are not tried. Threads share the counters
        without a lock: a lost update changes the number of tries, and no sample.
        """
        self._n_blocks += 1
        if self._n_blocks < self._next_try or not self._is_columnar:
            return None
        regular = read_regular(text, self._settings.schema, self._settings)
        written = None
        if self._learned is not None:
            written = self._learn(self._learned, regular, text)
        elif regular is not None and not holds(regular.contents, self._inline):
            written = self._in_columns(regular)
        # A failed try costs a tenth of the work: after failures, tries become rarer.
        self._n_failed = 0 if written is not None else self._n_failed + 1
        self._next_try = self._n_blocks + min(1 << self._n_failed, _MOST_SKIPPED) // 2
        return written

    def _learn(
        self, learned: LearnedWriter, regular: Regular | None, text: pa.LargeStringArray
    ) -> Written | None:
        """Return the samples of a Jinja template; None if none was written as it was learned."""
        if regular is not None:
            return learned.write(regular, text, self.write)
        is_plain = plain_rows(text, self._settings.schema)
        if is_plain is None:
            return None
        plain, rest = (text.filter(pa.array(chosen)) for chosen in (is_plain, ~is_plain))
        regular = read_regular(plain, self._settings.schema, self._settings)
        written = None if regular is None else learned.write(regular, plain, self.write)
        if written is None:
            return None
        parts = (written, is_plain), (self.write(rest), ~is_plain)
        return merged(*(placed(part, np.flatnonzero(rows), len(text)) for part, rows in parts))

    def _in_columns(self, regular: Regular) -> Written | None:
        """Return the samples of a built-in template; None if it does not repeat."""
        columns = self._columnar.write(regular)
        if columns is None:
            return None
        starts = regular.offsets[:-1]
        noticed = {
            name: np.add.reduceat(counts, starts)
            for name, counts in self.writer.kept.in_column(regular.contents).items()
        }
        if self._settings.schema == "text":
            rendered = self.writer.rendered.in_column(regular.contents)
            noticed |= {} if rendered is None else {RENDERED_TEXTS: rendered}
        return Written(columns, np.arange(len(starts)), [], {}, regular.unread, noticed)
