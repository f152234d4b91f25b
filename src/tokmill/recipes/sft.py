"""The recipe of SFT: one block of input to samples, their tokens and masks, on any thread.

As the recipe of pretraining, pure but for the engines' caches.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tokmill.chat.templates import is_foreign
from tokmill.dataset.layout import token_dtype
from tokmill.engines.engine import REFERENCE, load_engine
from tokmill.engines.engine_memory import EngineMemory
from tokmill.engines.routing import routed_counts
from tokmill.engines.spot_check import SpotCheck, counts, differences
from tokmill.masks.truncation import CUT_SAMPLES, truncate
from tokmill.offsets import byte_offsets
from tokmill.recipes.bos_eos import narrowed
from tokmill.recipes.encoded import EncodedBlock, join_records, split_encoded
from tokmill.recipes.memory_bounds import BLOCK_COPIES, engine_bytes, n_writers
from tokmill.recipes.render_pool import RenderPool
from tokmill.recipes.sft_encoder import make_sample_encoder
from tokmill.recipes.sft_setup import make_chat_renderer, sft_settings, vocabulary_of
from tokmill.recipes.validation import validation_texts
from tokmill.sources.parse_blocks import parse_blocks
from tokmill.timing import StageTimer
from tokmill.tokenizer.continuation import continuation_tokenizer
from tokmill.tokenizer.control_tokens import contains_any, control_token_strings
from tokmill.values import Reject

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from tokmill.engines.engine import Engine
    from tokmill.engines.spot_check import Checked
    from tokmill.masks.encoder import EncodedSamples
    from tokmill.recipes.spec import RunSpec
    from tokmill.sources.blocks import Block
    from tokmill.values import Records, SampleBatch

_TOO_SHORT = "fewer than min_tokens"
_UNTRAINED_WINDOWS = "windows without a trained token left out"
_CONTROL = (
    "control token in text",
    "a message holds a control token's string and control_tokens_in_text is reject",
)


class SftRecipe:
    """Template, mask rule, engines and settings of a run, loaded once per process.

    `reference`: gives the reference engine, where the process may have it already.
    """

    def __init__(self, spec: RunSpec, reference: Callable[[], Engine] | None = None) -> None:
        config, tokenizer = spec.config, spec.tokenizer
        self._settings = sft_settings(config)
        self._limits = config.limits
        self._val_fraction = config.output.val_fraction
        self._renderer = make_chat_renderer(config, tokenizer, spec.template)
        self._pool = RenderPool(
            self._renderer.writer,
            (self._settings, spec.template, vocabulary_of(config, tokenizer, spec.template)),
            n_writers(spec),
            is_apart=is_foreign(spec.template),
        )
        self._renderer.write = self._pool.write
        self.schema = self._renderer.schema
        self.dtype = token_dtype(config.output.dtype, tokenizer.max_emittable_id)
        control = config.tokenizer.control_tokens_in_text
        self._control = control_token_strings(tokenizer) if control == "reject" else []
        self.spot = _spot_check(spec, reference)
        self._memory = EngineMemory(engine_bytes(spec))
        self._encoder = make_sample_encoder(spec, self._memory)

    def process(self, blocks: Sequence[Block]) -> list[EncodedBlock]:
        """Parse, render, encode and mask blocks, at least one, as if each came alone."""
        with self._memory.holding(BLOCK_COPIES * sum(block.n_bytes for block in blocks)):
            return self._process(blocks)

    def _process(self, blocks: Sequence[Block]) -> list[EncodedBlock]:
        timer = StageTimer()
        parsed = parse_blocks(blocks)
        records = join_records(parsed)
        timer.end("parse")
        samples = self._renderer.render(records)
        timer.end("render")
        encoding = self._encoder.encode(samples, timer)
        refused = self._refused(samples, encoding, records)
        input_bytes = [block.input_bytes for block in blocks]
        whole = self._encoded(samples, encoding, refused, records, timer)
        encoded = split_encoded(whole, sorted(refused.items()), parsed, input_bytes)
        timer.end("narrow")
        return encoded

    def _refused(
        self, samples: SampleBatch, encoding: EncodedSamples, records: Records
    ) -> dict[int, Reject]:
        """Give why rows became nothing; of several reasons the first."""
        refused = dict(samples.refused)
        found = [(r.sample, r.reason, r.message) for r in encoding.refused]
        found += [(sample, *_CONTROL) for sample in self._with_control(samples)]
        for sample, reason, message in found:
            row = int(samples.rows[sample])
            place, raw = records.lookup.place(row), records.lookup.raw(row)
            refused.setdefault(row, Reject(place, reason, message, raw))
        return refused

    def _with_control(self, samples: SampleBatch) -> list[int]:
        if not self._control:
            return []
        is_text = samples.control < 0
        found = contains_any(samples.text, self._control) & is_text
        holders = np.searchsorted(samples.offsets, np.flatnonzero(found), "right") - 1
        return [int(sample) for sample in np.unique(holders)]

    def _encoded(
        self,
        samples: SampleBatch,
        encoding: EncodedSamples,
        refused: Mapping[int, Reject],
        records: Records,
        timer: StageTimer,
    ) -> EncodedBlock:
        """Fit the samples into their limits; a record that was refused gives none."""
        settings, limits = self._settings, self._limits
        keep = ~np.isin(samples.rows[encoding.samples], list(refused))
        encoding = encoding.selected(keep)
        fitted = truncate(
            encoding.tokens, limits.max_tokens, settings.too_long, settings.window_overlap
        )
        lengths = np.diff(fitted.samples.offsets)
        long_enough = lengths >= limits.min_tokens
        drops = self._drops(samples, encoding, fitted.dropped, fitted.source[~long_enough])
        if not long_enough.all():
            fitted = fitted.selected(np.flatnonzero(long_enough))
        source = encoding.samples[fitted.source]
        is_first = np.ones(len(source), bool)
        is_first[1:] = source[1:] != source[:-1]
        n_windows = np.bincount(fitted.untrained_windows, minlength=len(encoding.samples))
        noticed = {name: counts[encoding.samples] for name, counts in samples.noticed.items()}
        noticed |= {**encoding.counters, _UNTRAINED_WINDOWS: n_windows}
        tokens = fitted.samples
        owner = encoding.text_samples
        checked = self._checked(encoding, timer)
        n_samples = len(samples.rows)
        checks = counts(checked, owner, n_samples)
        checks |= routed_counts(encoding.text_tokens, owner, n_samples)
        counters = {name: np.where(is_first, n[fitted.source], 0) for name, n in noticed.items()}
        return EncodedBlock(
            tokens=narrowed(tokens.ids, self.dtype),
            offsets=tokens.offsets,
            rows=samples.rows[source],
            text_bytes=np.where(is_first, _text_bytes(samples)[source], 0),
            is_val=self._is_val(samples)[source],
            drops=drops,
            rejects=(),
            lookup=records.lookup,
            input_bytes=0,
            stage_s=timer.seconds,
            mask=(tokens.weights > 0).astype(np.uint8),
            loss_weights=tokens.weights if settings.weights == "file" else None,
            counters={**counters, CUT_SAMPLES: fitted.is_cut.astype(np.int64)},
            unread_keys=samples.unread_keys,
            checks={name: np.where(is_first, n[source], 0) for name, n in checks.items()},
            differences=differences(checked, samples.rows[owner]),
        )

    def _checked(self, encoding: EncodedSamples, timer: StageTimer) -> Sequence[Checked]:
        if self.spot is None:
            return ()
        timer.end("mask")
        checked = self.spot.check(
            encoding.texts,
            encoding.text_tokens,
            lambda goes_on, window: self._encoder.encode_text(
                window, timer, is_continuation=goes_on
            ),
            encoding.is_continuation,
        )
        timer.end("spot check")
        return checked

    def _drops(
        self,
        samples: SampleBatch,
        encoding: EncodedSamples,
        dropped: Mapping[str, npt.NDArray[np.int64]],
        too_short: npt.NDArray[np.int64],
    ) -> dict[str, npt.NDArray[np.int64]]:
        """Give the rows of samples that were left out, by reason."""
        found = {reason: [rows] for reason, rows in samples.drops.items()}
        lost = {**dropped, _TOO_SHORT: too_short} if len(too_short) else dropped
        for reason, numbers in lost.items():
            found.setdefault(reason, []).append(samples.rows[encoding.samples[numbers]])
        return {reason: np.sort(np.concatenate(rows)) for reason, rows in found.items()}

    def _is_val(self, samples: SampleBatch) -> npt.NDArray[np.bool_]:
        """Say which samples are validation: by the text of their record's first sample."""
        if self._val_fraction <= 0:
            return np.zeros(len(samples.rows), bool)
        offsets = byte_offsets(samples.text)[samples.offsets]
        found = validation_texts(samples.text, offsets, self._val_fraction)
        _, first = np.unique(samples.rows, return_index=True)
        of_row: npt.NDArray[np.bool_] = found[first][
            np.searchsorted(samples.rows[first], samples.rows)
        ]
        return of_row


def _spot_check(spec: RunSpec, reference: Callable[[], Engine] | None) -> SpotCheck | None:
    """Return what holds the run's engine against the reference; None where it is the reference."""
    if spec.engine.name == REFERENCE:
        return None
    control = spec.config.tokenizer.control_tokens_in_text
    load = partial(load_engine, REFERENCE, control_in_text=control, n_threads=1)
    other = continuation_tokenizer(spec.tokenizer)
    has_other = other is not None and other is not spec.tokenizer
    return SpotCheck(
        reference or partial(load, spec.tokenizer),
        spec.engine.spot_share,
        partial(load, other) if has_other else None,
    )


def _text_bytes(samples: SampleBatch) -> npt.NDArray[np.int64]:
    lengths: npt.NDArray[np.int64] = np.diff(byte_offsets(samples.text)[samples.offsets])
    return lengths
