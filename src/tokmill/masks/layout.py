"""Segments laid out for encoding: texts for an engine, and spans of one weight.

A text is what an engine encodes at once: adjacent text segments of one sample. A span has one
weight: a control token, or a part of a text. Two spans of one text meet at a boundary; there the
weight changes or a turn ends. With `split` a text also ends where the weight changes, so boundaries
are rare. With `joint`, they have to be found among the tokens of the text.

An added token with `lstrip` or `rstrip` strips the white space beside it, as `tokenizers` does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tokmill.offsets import byte_offsets, offsets_of, starts_run, text_column
from tokmill.tokenizer.tokenizer_json import WHITE_SPACE
from tokmill.values import UNMERGED_TEXT

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy.typing as npt

    from tokmill.values import SampleBatch


@dataclass(frozen=True, slots=True)
class SampleRules:
    """How samples are encoded.

    `boundary`: `split` or `joint`. `straddling`: how a token that straddles a joint boundary is
    treated: `train`, `mask` or `reject`. `after_control`: whether text after a control token is
    encoded as the `first` text or as a `continuation`. `strips_left`, `strips_right`: ids of the
    control tokens that strip the white space before and after them. `restarts`: tokens that are
    parsed in texts, which a text that continues another must not hold.
    """

    boundary: str
    straddling: str = "train"
    after_control: str = "first"
    strips_left: frozenset[int] = frozenset()
    strips_right: frozenset[int] = frozenset()
    restarts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """The texts and spans of a batch, both in order and never empty.

    For each text: `text_sample` int64; `follows_text` and `follows_control` bool, by the segment
    before it in its sample.
    For each span: `control` int32, below 0 for text; `weights` float32; `sample` int64; `ends_turn`
    bool; `is_inner` bool, whether it continues the text of the span before it.
    For each boundary, in order: `boundary_text` int64, its text; `boundary_bytes` int64, its
    position in the text.
    `stripped`: int64, the samples that lost trained white space to a control token, increasing.
    """

    texts: pa.LargeStringArray
    text_sample: npt.NDArray[np.int64]
    follows_text: npt.NDArray[np.bool_]
    follows_control: npt.NDArray[np.bool_]
    control: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]
    sample: npt.NDArray[np.int64]
    ends_turn: npt.NDArray[np.bool_]
    is_inner: npt.NDArray[np.bool_]
    boundary_text: npt.NDArray[np.int64]
    boundary_bytes: npt.NDArray[np.int64]
    stripped: npt.NDArray[np.int64]


def lay_out(batch: SampleBatch, rules: SampleRules) -> Layout:
    """Return the layout of a batch."""
    batch, stripped = _strip(batch, rules.strips_left, rules.strips_right)
    sample = np.repeat(np.arange(len(batch.offsets) - 1), np.diff(batch.offsets))
    is_text = batch.control < 0
    follows_text = is_text & ~starts_run(sample)
    follows_text[1:] &= is_text[:-1]
    unmerged = batch.control == UNMERGED_TEXT
    changes = starts_run(batch.weights)
    continues = follows_text & ~unmerged
    if rules.boundary == "split":
        continues &= ~changes
    after_turn = np.zeros(len(is_text), bool)
    after_turn[1:] = batch.turn_ends[:-1]
    starts_span = ~follows_text | changes | after_turn | unmerged

    text = batch.text.filter(pa.array(is_text))
    offsets = byte_offsets(text)
    text_segments = np.flatnonzero(is_text)
    starts_text = ~continues.take(text_segments)
    first_text = np.flatnonzero(starts_text)
    first_segment = text_segments.take(first_text)
    boundaries = np.flatnonzero(starts_span.take(text_segments) & ~starts_text)
    boundary_text = np.searchsorted(first_text, boundaries, "right") - 1
    spans = np.flatnonzero(starts_span)
    last_segment = np.append(spans[1:], len(is_text))[: len(spans)] - 1
    starts = offsets.take(first_text)
    first_follows_text = follows_text.take(first_segment)
    return Layout(
        texts=text_column(text, np.append(starts, offsets[-1])),
        text_sample=sample.take(first_segment),
        follows_text=first_follows_text,
        follows_control=~(first_follows_text | starts_run(sample).take(first_segment)),
        control=batch.control.take(spans),
        weights=batch.weights.take(spans),
        sample=sample.take(spans),
        ends_turn=batch.turn_ends.take(last_segment),
        is_inner=continues.take(spans),
        boundary_text=boundary_text,
        boundary_bytes=offsets.take(boundaries) - starts.take(boundary_text),
        stripped=stripped,
    )


def _strip(
    batch: SampleBatch, strips_left: Collection[int], strips_right: Collection[int]
) -> tuple[SampleBatch, npt.NDArray[np.int64]]:
    """Return a batch without the white space beside some control tokens; see `SampleRules`.

    Where a segment is white space only, it goes, and the next one is stripped too. Also returns the
    samples whose trained white space was stripped, increasing. White space after a trained control
    token belongs to the suffix of the turn and is not counted.
    """
    beside = [
        (at, step)
        for strips, step in ((strips_right, 1), (strips_left, -1))
        for at in (np.flatnonzero(np.isin(batch.control, list(strips))).tolist() if strips else ())
    ]
    if not beside:
        return batch, np.zeros(0, np.int64)
    texts, control, weights = batch.text.to_pylist(), batch.control.tolist(), batch.weights.tolist()
    sample = np.repeat(np.arange(len(batch.offsets) - 1), np.diff(batch.offsets)).tolist()
    stripped = set()
    for at, step in beside:
        i = at + step
        while 0 <= i < len(texts) and control[i] < 0 and sample[i] == sample[at]:
            text = texts[i]
            texts[i] = text.lstrip(WHITE_SPACE) if step == 1 else text.rstrip(WHITE_SPACE)
            if texts[i] != text and weights[i] > 0 and (step == -1 or weights[at] == 0):
                stripped.add(sample[i])
            if texts[i]:
                break
            i += step
    keep = (batch.control >= 0) | np.array(list(map(bool, texts)))
    turn_ends = batch.turn_ends.copy()
    for i in np.flatnonzero(turn_ends & ~keep)[::-1].tolist():
        # The segment before it ends the turn instead: only control tokens stand alone.
        turn_ends[i - 1] |= i > 0 and sample[i - 1] == sample[i]
    left = replace(
        batch,
        text=pa.array(texts, pa.large_string()).filter(pa.array(keep)),
        offsets=offsets_of(keep)[batch.offsets],
        control=batch.control[keep],
        weights=batch.weights[keep],
        turn_ends=turn_ends[keep],
    )
    return left, np.array(sorted(stripped), np.int64)
