"""The recipe of pretraining: one block of input to tokens, on any thread.

Pure but for the engine's caches: the same block gives the same result whatever was encoded before.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np

from tokmill.dataset.layout import token_dtype
from tokmill.engines.engine import REFERENCE, load_engine
from tokmill.engines.engine_memory import EngineMemory, RenewableEngine
from tokmill.engines.routing import load_routed, routed_counts
from tokmill.engines.spot_check import SpotCheck, counts, differences
from tokmill.fields import used_paths
from tokmill.offsets import byte_offsets, select_documents
from tokmill.recipes.bos_eos import Ends, add_bos_eos
from tokmill.recipes.encoded import EncodedBlock, join_records, split_encoded
from tokmill.recipes.left_out import weigh_records
from tokmill.recipes.memory_bounds import BLOCK_COPIES, engine_bytes
from tokmill.recipes.validation import validation_documents
from tokmill.render.renderer import make_renderer
from tokmill.sources.parse_blocks import parse_blocks
from tokmill.timing import StageTimer
from tokmill.tokenizer.control_tokens import contains_any, control_token_strings
from tokmill.values import DocumentBatch, Reject

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from tokmill.engines.engine import Engine
    from tokmill.engines.spot_check import Checked
    from tokmill.recipes.spec import RunSpec
    from tokmill.sources.blocks import Block
    from tokmill.values import Records, TokenBatch


class PretrainRecipe:
    """Renderer, engine and settings of a run, loaded once per process and shared by its threads.

    `reference`: gives the reference engine, where the process may have it already.
    """

    def __init__(self, spec: RunSpec, reference: Callable[[], Engine] | None = None) -> None:
        config, tokenizer = spec.config, spec.tokenizer
        control = config.tokenizer.control_tokens_in_text
        load = partial(load_engine, tokenizer=tokenizer, control_in_text=control)
        self.renderer = make_renderer(config.render)
        self.schema = self.renderer.schema
        self._used, self._labels = used_paths(self.schema), spec.labels
        self.dtype = token_dtype(config.output.dtype, tokenizer.max_emittable_id)
        self._memory = EngineMemory(engine_bytes(spec))
        load_reference = reference or cache(partial(load, REFERENCE, n_threads=1))
        self.engine = RenewableEngine(
            partial(
                load_routed,
                spec.engine.name,
                spec.engine.differs,
                tokenizer,
                load_reference,
                control_in_text=control,
                n_threads=spec.n_threads,
            ),
            self._memory,
        )
        self.spot: SpotCheck | None = None
        if spec.engine.name != REFERENCE:
            self.spot = SpotCheck(load_reference, spec.engine.spot_share)
        bos_id = None if tokenizer.bos is None else tokenizer.bos.id
        self._ends = Ends(tokenizer.eos.id, bos_id, self.dtype)
        self._limits = config.limits
        self._val_fraction = config.output.val_fraction
        self._control = control_token_strings(tokenizer) if control == "reject" else []

    def process(self, blocks: Sequence[Block]) -> list[EncodedBlock]:
        """Parse, render and encode blocks, at least one, as if each came alone."""
        with self._memory.holding(BLOCK_COPIES * sum(block.n_bytes for block in blocks)):
            return self._process(blocks)

    def _process(self, blocks: Sequence[Block]) -> list[EncodedBlock]:
        timer = StageTimer()
        parsed = parse_blocks(blocks)
        records = join_records(parsed)
        timer.end("parse")
        documents, refused = self._rendered(records)
        fields = weigh_records(parsed, documents.rows, self._used, self._labels)
        timer.end("render")
        batch = self.engine.encode(documents.text, timer)
        keep, drops = self._kept(batch.lengths, documents.rows)
        rows, text = documents.rows, documents.text
        if drops:
            batch, rows, text = select_documents(batch, keep), rows[keep], text.filter(keep)
        timer.end("narrow")
        checked = self._checked(text, batch, timer)
        tokens, offsets = add_bos_eos(batch, self._ends)
        is_val = validation_documents(text, self._val_fraction)
        every = np.arange(len(rows))
        checks = counts(checked, every, len(rows)) | routed_counts(batch, every, len(rows))
        input_bytes = [block.input_bytes for block in blocks]
        whole = EncodedBlock(
            tokens,
            offsets,
            rows,
            _byte_lengths(text),
            is_val,
            drops,
            (),
            records.lookup,
            sum(input_bytes),
            timer.seconds,
            fields=fields,
            checks=checks,
            differences=differences(checked, rows),
        )
        encoded = split_encoded(whole, refused, parsed, input_bytes)
        timer.end("narrow")
        return encoded

    def _checked(
        self, text: pa.LargeStringArray, batch: TokenBatch, timer: StageTimer
    ) -> Sequence[Checked]:
        if self.spot is None:
            return ()
        checked = self.spot.check(text, batch, lambda _, window: self.engine.encode(window, timer))
        timer.end("spot check")
        return checked

    def _rendered(self, records: Records) -> tuple[DocumentBatch, list[tuple[int, Reject]]]:
        """Give the documents, and the rows that became none, in order."""
        documents = self.renderer.render(records)
        is_refused = np.ones(records.batch.num_rows, bool)
        is_refused[documents.rows] = False
        rows = np.flatnonzero(is_refused).tolist()
        refused = list(zip(rows, documents.rejects, strict=True))
        if not self._control:
            return documents, refused
        found = contains_any(documents.text, self._control)
        if not found.any():
            return documents, refused
        for row in documents.rows[found].tolist():
            message = "the text holds a control token's string and control_tokens_in_text is reject"
            place, raw = records.lookup.place(row), records.lookup.raw(row)
            refused.append((row, Reject(place, "control token in text", message, raw)))
        refused.sort(key=lambda pair: pair[0])
        return DocumentBatch(documents.text.filter(~found), documents.rows[~found], ()), refused

    def _kept(
        self, lengths: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.bool_], dict[str, npt.NDArray[np.int64]]]:
        keep = np.ones(len(lengths), bool)
        drops: dict[str, npt.NDArray[np.int64]] = {}
        tests = {
            "fewer than min_tokens": lengths < self._limits.min_tokens,
            "more than max_tokens": (lengths > self._limits.max_tokens)
            & (self._limits.max_tokens > 0),
        }
        for reason, failed in tests.items():
            dropped = failed & keep
            if dropped.any():
                drops[reason] = rows[dropped]
                keep &= ~dropped
        return keep, drops


def _byte_lengths(text: pa.LargeStringArray) -> npt.NDArray[np.int64]:
    offsets = byte_offsets(text)
    return offsets[1:] - offsets[:-1]
