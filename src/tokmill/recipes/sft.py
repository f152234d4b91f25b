"""The recipe of SFT: conversations become samples, and samples become tokens with masks.

As in pretraining, the result for a block depends on that block alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.chat.mask_rule import WEIGHED, mask_rule
from tokmill.chat.render_pool import emitted_strings
from tokmill.dataset.counts import CUT_SAMPLES, LONG_PROMPT, TOO_SHORT, TRAINED_TURNS
from tokmill.dataset.layout import token_dtype
from tokmill.engines.choice import Continuation
from tokmill.engines.continuation_check import check_continuation
from tokmill.engines.engine import REFERENCE
from tokmill.engines.loaded import EngineMemory
from tokmill.engines.spot_check import SpotCheck
from tokmill.errors import TokenizerError
from tokmill.masks.encoder import SampleEncoder
from tokmill.masks.layout import SampleRules
from tokmill.masks.truncation import truncate
from tokmill.offsets import before_first, byte_offsets, starts_run
from tokmill.recipes.encoded import (
    EncodedBlock,
    encode_kept,
    narrow_ids,
    process_blocks,
    validation_documents,
)
from tokmill.recipes.engines import make_engine, reference_loader
from tokmill.recipes.memory_bounds import engine_bytes, n_writers
from tokmill.recipes.named import chats_with_names, fields_with_values, rows_with
from tokmill.recipes.sft_setup import make_chat_renderer, sft_settings
from tokmill.rendering.where import make_filter
from tokmill.tokenizer.byte_lengths import byte_lengths
from tokmill.tokenizer.continuation import after_control, continuation_tokenizer
from tokmill.tokenizer.control_tokens import added_tokens, contains_any, control_token_strings
from tokmill.tokenizer.unknown_text import UnknownText

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from tokmill.engines.loaded import RenewableEngine
    from tokmill.masks.encoder import EncodedSamples
    from tokmill.masks.truncation import Truncated
    from tokmill.recipes.spec import RunSpec
    from tokmill.sources.formats import Block
    from tokmill.sources.slices import Slice
    from tokmill.timing import StageTimer
    from tokmill.tokenizer.tokenizer import Tokenizer
    from tokmill.values import Records, Reject, SampleBatch

_UNTRAINED_WINDOWS = "windows without a trained token left out"
_CONTROL_IN_TEXT = (
    "control token in text",
    "a message holds a control token's string and control_tokens_in_text is reject",
)


class SftRecipe:
    """Template, mask rule, engines and settings of a run; loaded once per process."""

    def __init__(self, spec: RunSpec) -> None:
        config, tokenizer = spec.config, spec.tokenizer
        self.read_by(spec)
        self._limits = config.limits
        self._val_fraction = config.output.val_fraction
        self.dtype = token_dtype(config.output.dtype, tokenizer.max_emittable_id)
        is_reject = config.tokenizer.control_tokens_in_text == "reject"
        self._control = control_token_strings(tokenizer) if is_reject else []
        self._unknown = UnknownText(tokenizer)
        self.spot = _make_spot_check(spec)
        self._memory = EngineMemory(engine_bytes(spec))
        self._encoder = make_sample_encoder(spec, self._memory)

    def read_by(self, spec: RunSpec) -> None:
        """Take the settings with which records are read, and their renderer."""
        self._config, self._settings = spec.config, sft_settings(spec.config)
        self._where = make_filter(spec.config.input)
        self._renderer = make_chat_renderer(
            spec.config, spec.tokenizer, spec.template, n_writers(spec)
        )
        self.schema = self._renderer.schema

    def blocks_of(self, _: Slice, blocks: Iterator[Block]) -> Iterator[Block]:
        """Return the blocks of a slice."""
        return blocks

    def process(self, blocks: Sequence[Block]) -> list[EncodedBlock]:
        """Return the samples of each block, at least one; blocks do not influence each other."""
        return process_blocks(blocks, self._memory, self._encode)

    def _encode(
        self, records: Records, timer: StageTimer
    ) -> tuple[EncodedBlock, Mapping[int, Reject]]:
        """Return the samples of records, and the rejects by row of records that have none."""
        return encode_kept(records, self._where, self._encode_kept, timer)

    def _encode_kept(
        self, records: Records, timer: StageTimer
    ) -> tuple[EncodedBlock, dict[int, Reject]]:
        """Return what `_encode` does for the records that the filter keeps."""
        samples = self._renderer.render(records)
        timer.end("render")
        encoded = self._encoder.encode(samples, timer)
        refused = self._refused(samples, encoded, records)
        encoded = encoded.selected(~np.isin(samples.rows[encoded.samples], list(refused)))
        has_long_prompt = self._have_long_prompts(encoded)
        long_prompts = encoded.selected(has_long_prompt)
        encoded = encoded.selected(~has_long_prompt)
        kept, drops, lost = self._truncate(samples, encoded, long_prompts)
        source = encoded.samples[kept.source]
        is_first = starts_run(source)
        checks: dict[str, npt.NDArray[np.int64]] = {}
        differing: Sequence[tuple[int, str]] = []
        if self.spot is not None:
            timer.end("mask")
            checks, differing = self.spot.check(
                encoded.texts,
                encoded.text_tokens,
                lambda is_continuation, window: self._encoder.encode_text(
                    window, timer, is_continuation=is_continuation
                ),
                encoded.text_samples,
                samples.rows,
                encoded.by_continuation_engine,
            )
            timer.end("spot check")
        sidecars: dict[str, npt.NDArray[Any]] = {
            "mask": (kept.samples.weights > 0).astype(np.uint8)
        }
        if self._settings.weights == "file":
            sidecars["weight"] = kept.samples.weights
        block = EncodedBlock(
            tokens=narrow_ids(kept.samples.ids, self.dtype),
            offsets=kept.samples.offsets,
            rows=samples.rows[source],
            text_bytes=np.diff(byte_offsets(samples.text)[samples.offsets])[source] * is_first,
            is_val=self._is_val(samples)[source],
            drops=drops,
            lost=lost,
            sidecars=sidecars,
            counters={
                **_counters(samples, encoded, kept, is_first),
                **self._unknown.in_tokens(kept.samples.ids, kept.samples.offsets),
                **{
                    name: _of_samples(n, samples)[source] * is_first
                    for name, n in self._unknown.in_texts(samples.text).items()
                },
            },
            unread_keys=samples.unread_keys,
            checks={name: n[source] * is_first for name, n in checks.items()},
            differences=differing,
            named={
                **fields_with_values(self._config, records),
                **chats_with_names(self._settings, records),
                **{
                    name: rows_with(samples.rows[n > 0], records.batch.num_rows)
                    for name, n in samples.counters.items()
                    if name.startswith(WEIGHED)
                },
            },
        )
        return block, refused

    def _refused(
        self, samples: SampleBatch, encoded: EncodedSamples, records: Records
    ) -> dict[int, Reject]:
        """Return the rejects by row; of several reasons the first counts."""
        refused = dict(samples.refused)
        causes = sorted(encoded.refused.items())
        causes += [(sample, _CONTROL_IN_TEXT) for sample in self._with_control(samples)]
        for sample, (reason, message) in causes:
            row = int(samples.rows[sample])
            refused.setdefault(row, records.reject(row, reason, message))
        return refused

    def _with_control(self, samples: SampleBatch) -> list[int]:
        if not self._control:
            return []
        is_held = contains_any(samples.text, self._control) & (samples.control < 0)
        holders = np.searchsorted(samples.offsets, np.flatnonzero(is_held), "right") - 1
        return [int(sample) for sample in np.unique(holders)]

    def _have_long_prompts(self, encoded: EncodedSamples) -> npt.NDArray[np.bool_]:
        """Return which samples have too many tokens before the first trained one."""
        tokens, most = encoded.tokens, self._settings.max_prompt_tokens
        if not most:
            return np.zeros(len(encoded.samples), bool)
        trained = np.flatnonzero(tokens.weights > 0)
        is_long: npt.NDArray[np.bool_] = before_first(trained, tokens.offsets) > most
        return is_long

    def _truncate(
        self, samples: SampleBatch, encoded: EncodedSamples, long_prompts: EncodedSamples
    ) -> tuple[Truncated, dict[str, npt.NDArray[np.int64]], dict[str, npt.NDArray[np.int64]]]:
        """Return the samples within the limits, the rows of others by reason, and what is lost.

        `long_prompts`: samples that were left out before.
        """
        limits, settings = self._limits, self._settings
        kept = truncate(
            encoded.tokens, limits.max_tokens, settings.too_long, settings.window_overlap
        )
        lengths, of_kept = np.diff(encoded.tokens.offsets), np.diff(kept.samples.offsets)
        held = np.bincount(kept.source, of_kept, len(lengths)).astype(np.int64)
        cut = np.flatnonzero((held > 0) & (held < lengths))
        lost = {reason: (numbers, lengths[numbers]) for reason, numbers in kept.dropped.items()}
        if len(cut):
            lost[CUT_SAMPLES] = cut, (lengths - held)[cut]
        is_short = of_kept < limits.min_tokens
        if is_short.any():
            lost[TOO_SHORT] = kept.source[is_short], of_kept[is_short]
            kept = kept.selected(np.flatnonzero(~is_short))
        rows = {reason: [of_reason] for reason, of_reason in samples.drops.items()}
        lost_tokens = {
            reason: np.stack([samples.rows[encoded.samples[numbers]], n_tokens], axis=1)
            for reason, (numbers, n_tokens) in lost.items()
        }
        if len(long_prompts.samples):
            n_tokens = np.diff(long_prompts.tokens.offsets)
            of_rows = samples.rows[long_prompts.samples]
            lost_tokens[LONG_PROMPT] = np.stack([of_rows, n_tokens], axis=1)
        for reason in lost_tokens.keys() - {CUT_SAMPLES}:
            rows.setdefault(reason, []).append(lost_tokens[reason][:, 0])
        drops = {reason: np.sort(np.concatenate(parts)) for reason, parts in rows.items()}
        return kept, drops, lost_tokens

    def _is_val(self, samples: SampleBatch) -> npt.NDArray[np.bool_]:
        """Return which samples are validation: the text of a record's first sample decides."""
        offsets = byte_offsets(samples.text)[samples.offsets]
        is_val = validation_documents(samples.text, self._val_fraction, offsets)
        is_first = starts_run(samples.rows)
        of_sample: npt.NDArray[np.bool_] = is_val[is_first][np.cumsum(is_first) - 1]
        return of_sample


def _counters(
    samples: SampleBatch, encoded: EncodedSamples, kept: Truncated, is_first: npt.NDArray[np.bool_]
) -> dict[str, npt.NDArray[np.int64]]:
    """Return the counters of kept samples; the first window of a sample has those of all."""
    n_windows = np.bincount(kept.untrained_windows, minlength=len(encoded.samples))
    counters = {
        name: n[encoded.samples]
        for name, n in samples.counters.items()
        if not name.startswith(WEIGHED)
    }
    counters[TRAINED_TURNS] = _trained_turns(samples)[encoded.samples]
    counters |= {**encoded.counters, _UNTRAINED_WINDOWS: n_windows}
    counters = {name: n[kept.source] * is_first for name, n in counters.items()}
    counters[CUT_SAMPLES] = kept.is_cut.astype(np.int64)
    return {name: n for name, n in counters.items() if n.any()}


def _of_samples(of_segments: npt.NDArray[np.int64], samples: SampleBatch) -> npt.NDArray[np.int64]:
    """Return the sums of samples, (n_samples,), of numbers of their segments."""
    return np.diff(np.concatenate([[0], np.cumsum(of_segments)])[samples.offsets])


def _trained_turns(samples: SampleBatch) -> npt.NDArray[np.int64]:
    """Return the number of trained turns of each sample: (n_samples,)."""
    return _of_samples(samples.turn_ends.astype(np.int64), samples)


def _make_spot_check(spec: RunSpec) -> SpotCheck | None:
    """Return the comparison with the reference; None if the reference itself encodes."""
    if spec.engine.name == REFERENCE:
        return None
    tokenizer, other = spec.tokenizer, continuation_tokenizer(spec.tokenizer)
    load_other = None
    if other is not None and other is not tokenizer:
        load_other = reference_loader(spec, other)
    return SpotCheck(reference_loader(spec, tokenizer), spec.engine.spot_share, load_other)


def make_sample_encoder(spec: RunSpec, memory: EngineMemory) -> SampleEncoder:
    """Return the encoder that a run's settings describe; `memory`: the bound of its engines.

    Raises:
        TokenizerError: this tokenizer does not support the boundary of the settings.
    """
    config, tokenizer = spec.config, spec.tokenizer
    settings, rule = sft_settings(config), mask_rule(sft_settings(config))
    is_joint = rule.boundary == "joint"
    continuation, added = continuation_tokenizer(tokenizer), added_tokens(tokenizer)
    engine = make_engine(spec, tokenizer, spec.engine, memory)
    rest: RenewableEngine | None = engine
    encoded_as, restarts = "first", list[str]()
    if continuation is not tokenizer:
        emitted = emitted_strings(spec.template, frozenset(added)) | (
            {tokenizer.eos.content} & set(added)
        )
        encoded_as = after_control(tokenizer, continuation, emitted)
        # Joint boundaries cut no text: only text after control tokens may be a continuation.
        is_optional = is_joint and encoded_as == "first"
        rest = _continuation_engine(spec, continuation, memory, is_optional=is_optional)
        if config.tokenizer.control_tokens_in_text == "parse":
            restarts = [string for string, token in added.items() if not token.special]
    rules = SampleRules(
        rule.boundary,
        rule.straddling,
        encoded_as,
        strips_left=frozenset(token.id for token in added.values() if token.lstrip),
        strips_right=frozenset(token.id for token in added.values() if token.rstrip),
        restarts=tuple(restarts),
    )
    needs_lengths = is_joint or settings.too_long == "drop-turns"
    return SampleEncoder(
        engine,
        rest,
        rules,
        lengths=byte_lengths(tokenizer) if needs_lengths else None,
    )


def _continuation_engine(
    spec: RunSpec, continuation: Tokenizer | None, memory: EngineMemory, *, is_optional: bool
) -> RenewableEngine | None:
    """Return the engine for continuations; None if the tokenizer cannot encode them.

    Raises:
        TokenizerError: the tokenizer encodes them wrongly, and they are not optional.
    """
    if continuation is None:
        return None
    parse = spec.config.tokenizer.control_tokens_in_text == "parse"
    first, rest = (reference_loader(spec, of)() for of in (spec.tokenizer, continuation))
    try:
        check_continuation(spec.tokenizer, first, rest, parse=parse)
    except TokenizerError:
        if is_optional:
            return None
        raise
    choice = spec.engine.continuation or Continuation(REFERENCE)
    return make_engine(spec, continuation, choice, memory)
