"""The recipe of pretraining: records are rendered, encoded, and get bos and eos.

The result for a block depends on that block alone, so blocks may be processed on any thread.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tokmill.dataset.counts import TOO_LONG, TOO_SHORT
from tokmill.dataset.layout import token_dtype
from tokmill.engines.engine import REFERENCE
from tokmill.engines.loaded import EngineMemory
from tokmill.engines.spot_check import SpotCheck
from tokmill.offsets import byte_offsets
from tokmill.recipes.document_renderer import DocumentRenderer
from tokmill.recipes.encoded import (
    EncodedBlock,
    add_bos_eos,
    encode_kept,
    process_blocks,
    validation_documents,
)
from tokmill.recipes.engines import make_engine, reference_loader
from tokmill.recipes.memory_bounds import engine_bytes
from tokmill.recipes.named import Named, fields_with_values, rows_with
from tokmill.recipes.placed_tokens import EncodedTexts, PlacedTokens
from tokmill.rendering.fields import used_paths, weigh
from tokmill.rendering.where import make_filter
from tokmill.tokenizer.control_tokens import control_token_strings
from tokmill.tokenizer.markers import MarkerCounter
from tokmill.tokenizer.unknown_text import UnknownText
from tokmill.values import DocumentBatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from tokmill.recipes.spec import RunSpec
    from tokmill.sources.formats import Block
    from tokmill.sources.slices import Slice
    from tokmill.timing import StageTimer
    from tokmill.values import DocumentBatch, Records, Reject


class PretrainRecipe:
    """Renderer, engine and settings of a run; loaded once per process and shared by its threads."""

    def __init__(self, spec: RunSpec) -> None:
        config, tokenizer, choice = spec.config, spec.tokenizer, spec.engine
        control = config.tokenizer.control_tokens_in_text
        self._control = control_token_strings(tokenizer) if control == "reject" else []
        self.read_by(spec)
        self.dtype = token_dtype(config.output.dtype, tokenizer.max_emittable_id)
        self._memory = EngineMemory(engine_bytes(spec))
        self.engine = make_engine(spec, tokenizer, choice, self._memory)
        self._placed = PlacedTokens(spec, self.engine, self._memory)
        self.spot: SpotCheck | None = None
        if choice.name != REFERENCE:
            self.spot = SpotCheck(reference_loader(spec, tokenizer), choice.spot_share)
        self._eos_id = tokenizer.eos.id
        self._bos_id = None if tokenizer.bos is None else tokenizer.bos.id
        self._limits = config.limits
        self._val_fraction = config.output.val_fraction
        self._markers = MarkerCounter(tokenizer, parses=control == "parse")
        self._unknown = UnknownText(tokenizer)

    def read_by(self, spec: RunSpec) -> None:
        """Take the renderer and the fields of the settings of reading."""
        self._config = spec.config
        self._where = make_filter(spec.config.input)
        self._documents = DocumentRenderer(spec.config, self._control)
        self.renderer = self._documents.renderer
        self.schema = self.renderer.schema
        self._used, self._labels = used_paths(self.schema), spec.readings[0].labels
        self._nested = {path.partition("[")[0] for path in self._used if "[" in path}

    def blocks_of(self, piece: Slice, blocks: Iterator[Block]) -> Iterator[Block]:
        """Return the blocks of a slice, with what its file decides; the first ones may be read."""
        return self._documents.blocks_of(piece, blocks)

    def process(self, blocks: Sequence[Block]) -> list[EncodedBlock]:
        """Return the documents of each block, at least one; blocks do not influence each other."""
        return process_blocks(blocks, self._memory, partial(self._encode, blocks))

    def _encode(
        self, blocks: Sequence[Block], records: Records, timer: StageTimer
    ) -> tuple[EncodedBlock, Mapping[int, Reject]]:
        """Return the documents of records, and the rejects of other records by row.

        A file decides by all of its first records, also by those that the filter leaves out.
        """
        names = self._documents.names_of(blocks, records)
        return encode_kept(records, self._where, partial(self._encode_kept, names), timer)

    def _encode_kept(
        self, names: list[str], records: Records, timer: StageTimer
    ) -> tuple[EncodedBlock, Mapping[int, Reject]]:
        """Return what `_encode` does; `names`: the renderer of each block."""
        documents = self._documents.render(records, names)
        rows, text = documents.rows, documents.text
        is_kept = np.zeros(records.batch.num_rows, bool)
        is_kept[rows] = True
        fields = [
            (row, weigh(record, self._used, self._nested, self._labels))
            for row, record in records.samples
            if is_kept[row]
        ]
        timer.end("render")
        encoded_texts = self._encode_texts(documents, timer)
        lengths, limits = encoded_texts.batch.lengths, self._limits
        is_short = lengths < limits.min_tokens
        is_long = (lengths > limits.max_tokens) & ~is_short & bool(limits.max_tokens)
        drops, lost = dict(documents.drops), {}
        for reason, is_dropped in ((TOO_SHORT, is_short), (TOO_LONG, is_long)):
            if is_dropped.any():
                drops[reason] = rows[is_dropped]
                lost[reason] = np.stack([rows, lengths], axis=1)[is_dropped]
        if lost:
            keep = ~(is_short | is_long)
            encoded_texts, rows, text = encoded_texts.selected(keep), rows[keep], text.filter(keep)
        timer.end("narrow")
        checks: dict[str, npt.NDArray[np.int64]] = {}
        differing: Sequence[tuple[int, str]] = []
        if self.spot is not None:
            checks, differing = self.spot.check(
                encoded_texts.texts,
                encoded_texts.tokens,
                lambda _, window: self.engine.encode(window, timer),
                encoded_texts.owner,
                rows,
            )
            timer.end("spot check")
        tokens, offsets = add_bos_eos(encoded_texts.batch, self._eos_id, self._bos_id, self.dtype)
        encoded = EncodedBlock(
            tokens=tokens,
            offsets=offsets,
            rows=rows,
            text_bytes=np.diff(byte_offsets(text)),
            is_val=validation_documents(text, self._val_fraction),
            drops=drops,
            lost=lost,
            fields=fields,
            counters=self._counters(encoded_texts, len(rows)),
            checks=checks,
            differences=differing,
            renderers=names,
            named=self._named(records, documents),
        )
        return encoded, documents.refused

    def _named(
        self, records: Records, documents: DocumentBatch
    ) -> Mapping[str, npt.NDArray[np.bool_]]:
        """Return which records, (n,), have what the settings name, by label."""
        named = fields_with_values(self._config, records)
        if documents.stripped is not None:
            label = Named("render.strip_end", self._config.render.strip_end).label
            named[label] = rows_with(documents.stripped, records.batch.num_rows)
        return named

    def _counters(
        self, encoded: EncodedTexts, n_documents: int
    ) -> Mapping[str, npt.NDArray[np.int64]]:
        """Return what is counted in the text of n documents, by name: (n,) each.

        Control tokens that the renderer has placed do not count.
        """
        counters = {
            **self._markers.count(encoded.texts),
            **self._unknown.in_tokens(encoded.tokens.ids, encoded.tokens.offsets),
            **self._unknown.in_texts(encoded.texts),
        }
        return {
            name: np.bincount(encoded.owner, of_text, n_documents).astype(np.int64)
            for name, of_text in counters.items()
        }

    def _encode_texts(self, documents: DocumentBatch, timer: StageTimer) -> EncodedTexts:
        """Return the ids of documents, with the control tokens that the renderer has placed."""
        if documents.pieces is not None:
            return self._placed.encode(self.renderer.name, documents.pieces, timer)
        batch = self.engine.encode(documents.text, timer)
        return EncodedTexts(batch, documents.text, batch, np.arange(len(documents.text)))
