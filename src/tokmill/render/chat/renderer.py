"""The chat renderer: whole records of a block to samples with the weight of every segment."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tokmill.batch import WHOLE_RECORD, Reject, SampleBatch
from tokmill.render.chat.columnar import ColumnarWriter
from tokmill.render.chat.conversation import ChatError
from tokmill.render.chat.regular import read_regular
from tokmill.render.chat.rule import segment_weights
from tokmill.render.chat.schemas import parse_record, read_conversation
from tokmill.render.chat.segments import Kind, Segments

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from tokmill.batch import Records
    from tokmill.config import SftSettings
    from tokmill.render.chat.conversation import Conversation
    from tokmill.render.chat.rule import MaskRule
    from tokmill.render.chat.segments import Columns
    from tokmill.render.chat.templates import ChatTemplate, Vocabulary

_SELDOM = 64
"""Blocks after which a regular one is looked for again, where there were none."""


class ChatRenderer:
    """Turns records into samples; pure, so threads may share one.

    `schema_name`: one of the schemas, `auto` resolved.
    """

    schema = pa.schema([(WHOLE_RECORD, pa.large_string())])

    def __init__(
        self,
        settings: SftSettings,
        schema_name: str,
        template: ChatTemplate,
        rule: MaskRule,
        vocabulary: Vocabulary,
    ) -> None:
        self.name = f"{schema_name} as {template.name}"
        self._settings = settings
        self._schema_name = schema_name
        self._template = template
        self._rule = rule
        self._control = vocabulary.control
        self._eos = vocabulary.eos
        self._columnar = ColumnarWriter(template, vocabulary.control)
        self._n_blocks = self._next_try = self._in_vain = 0

    def render(self, records: Records) -> SampleBatch:
        """Give the samples of a block's records, in order."""
        columns = self._by_columns(records.batch.column(0))
        if columns is not None:
            rows = np.arange(len(columns.offsets) - 1)
            return _samples(columns, self._rule, rows, (), {})
        found = _Found(self._control)
        for row, text in enumerate(records.batch.column(0).to_pylist()):
            try:
                record = parse_record(text)
                conversation = read_conversation(record, self._schema_name, self._settings)
                for sample in self._samples(conversation):
                    self._render(sample, found, row)
            except ChatError as error:
                found.refuse(records, row, error)
        return found.batch(self._rule)

    def render_conversation(self, conversation: Conversation) -> SampleBatch:
        """Give the samples of one conversation.

        Raises:
            ChatError: it cannot be written.
        """
        found = _Found(self._control)
        for sample in self._samples(conversation):
            self._render(sample, found, 0)
        return found.batch(self._rule)

    def _by_columns(self, text: pa.LargeStringArray) -> Columns | None:
        """Give the segments of a regular block; None where it is not, or is not likely to be."""
        self._n_blocks += 1
        if self._rule.append_eos != "no" or self._n_blocks < self._next_try:
            return None
        regular = read_regular(text, self._schema_name, self._settings)
        columns = None if regular is None else self._columnar.write(regular)
        # To find that out is a tenth of the work: the more often in vain, the more seldom.
        self._in_vain = 0 if columns is not None else self._in_vain + 1
        self._next_try = self._n_blocks + min(1 << self._in_vain, _SELDOM) // 2
        return columns

    def _samples(self, conversation: Conversation) -> Iterator[Conversation]:
        """Give the conversation, or one for each assistant turn, which alone is trained."""
        if self._settings.samples == "conversation":
            yield conversation
            return
        found = False
        for i, message in enumerate(conversation.messages):
            if message["role"] == "assistant" and conversation.weights[i] != 0:
                found = True
                weights: list[float | None] = [*([0.0] * i), conversation.weights[i]]
                yield replace(
                    conversation, messages=conversation.messages[: i + 1], weights=weights
                )
        if not found:
            raise ChatError("no trained token", "it has no assistant turn", is_drop=True)

    def _render(self, conversation: Conversation, found: _Found, row: int) -> None:
        segments = found.segments
        segments.begin_sample()
        self._template.render(conversation, segments)
        if self._rule.append_eos != "no":
            segments.control(self._eos, Kind.END)
        if segments.is_empty():
            raise ChatError("empty", "the sample has no text")
        found.rows.append(row)


class _Found:
    """Collects the samples of a block."""

    def __init__(self, control: Mapping[str, int]) -> None:
        self.segments = Segments(control)
        self.rows: list[int] = []
        self._refused: list[tuple[int, Reject]] = []
        self._drops: dict[str, list[int]] = {}

    def refuse(self, records: Records, row: int, error: ChatError) -> None:
        """Take back what the record gave, and note why."""
        while len(self.segments.first_segments) > len(self.rows):
            self.segments.discard_sample()
        while self.rows and self.rows[-1] == row:
            self.segments.discard_sample()
            self.rows.pop()
        if error.is_drop:
            self._drops.setdefault(error.reason, []).append(row)
            return
        lookup = records.lookup
        self._refused.append(
            (row, Reject(lookup.place(row), error.reason, error.message, lookup.raw(row)))
        )

    def batch(self, rule: MaskRule) -> SampleBatch:
        """Give the samples, masked by the rule."""
        drops = {reason: np.array(rows, np.int64) for reason, rows in self._drops.items()}
        rows = np.array(self.rows, np.int64)
        return _samples(self.segments.columns(), rule, rows, self._refused, drops)


def _samples(
    columns: Columns,
    rule: MaskRule,
    rows: npt.NDArray[np.int64],
    refused: Sequence[tuple[int, Reject]],
    drops: Mapping[str, npt.NDArray[np.int64]],
) -> SampleBatch:
    weights, turn_ends = segment_weights(columns.table, rule)
    return SampleBatch(
        columns.text, columns.offsets, columns.ids, weights, turn_ends, rows, refused, drops
    )
