"""The segments of samples as flat arrays, as they are encoded: white space stripped, none empty."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokmill.offsets import byte_offsets
from tokmill.tokenizer.cuts import WHITE_SPACE

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy.typing as npt

    from tokmill.values import SampleBatch

_NONE = np.zeros(0, np.int64)

TEXT_ALONE = -2
"""What stands for the control token of a text that begins with a token of its own."""


@dataclass(frozen=True, slots=True)
class TextSegments:
    """Segments as flat arrays; `text` holds those of text alone.

    `swallowed`: the samples that lost trained white space to a control token beside it, in order.
    """

    text: pa.LargeStringArray
    control: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]
    ends_turn: npt.NDArray[np.bool_]
    sample: npt.NDArray[np.int64]
    swallowed: npt.NDArray[np.int64]


def segments_of(
    batch: SampleBatch, strips_left: Collection[int], strips_right: Collection[int]
) -> TextSegments:
    """Return the segments of a batch; control tokens of these ids strip white space beside them."""
    control = batch.control
    n_samples = len(batch.offsets) - 1
    sample = np.repeat(np.arange(n_samples), np.diff(batch.offsets))
    text = batch.text
    swallowed = _NONE
    for strips, step in ((strips_right, 1), (strips_left, -1)):
        at = np.flatnonzero(np.isin(control, list(strips))) if strips else ()
        if len(at):
            stripped = _stripped(text, control < 0, sample, np.asarray(at), step)
            lost = _lost(batch, text, stripped, behind=step == 1)
            swallowed, text = np.union1d(swallowed, sample[lost]), stripped
    text = text.filter(pa.array(control < 0))
    return _without_empty(
        TextSegments(text, control, batch.weights, batch.turn_ends, sample, swallowed)
    )


def _lost(
    batch: SampleBatch, text: pa.LargeStringArray, stripped: pa.LargeStringArray, *, behind: bool
) -> npt.NDArray[np.int64]:
    """Return the segments whose stripping matters: trained ones, not the suffix of an end of turn.

    `behind`: what stood behind control tokens was stripped. That is a suffix where these are
    trained themselves.
    """
    is_lost = np.diff(byte_offsets(stripped)) < np.diff(byte_offsets(text))
    lost = np.flatnonzero(is_lost & (batch.weights > 0))
    if behind:
        control = np.flatnonzero(batch.control >= 0)
        before = control[np.searchsorted(control, lost) - 1]
        lost = lost[batch.weights[before] == 0]
    return lost


def _stripped(
    text: pa.LargeStringArray,
    is_text: npt.NDArray[np.bool_],
    sample: npt.NDArray[np.int64],
    at: npt.NDArray[np.int64],
    step: int,
) -> pa.LargeStringArray:
    """Take the white space off that follows (step 1) or precedes (-1) the segments `at`.

    Where a segment was nothing else, that of its neighbour goes too.
    """
    trim = pc.utf8_ltrim if step == 1 else pc.utf8_rtrim
    while len(at):
        behind = at + step
        inside = (behind >= 0) & (behind < len(sample))
        at, behind = at[inside], behind[inside]
        at = behind[is_text[behind] & (sample[behind] == sample[at])]
        mask = np.zeros(len(sample), bool)
        mask[at] = True
        trimmed = trim(text.filter(pa.array(mask)), characters=WHITE_SPACE)
        text = pc.replace_with_mask(text, pa.array(mask), trimmed)
        at = at[np.diff(byte_offsets(text))[at] == 0]
    return text


def _without_empty(segments: TextSegments) -> TextSegments:
    """Drop texts of no bytes: a turn that ends with one ends with the segment before it.

    What is to begin with a token of its own is then the text behind it.
    """
    lengths = np.diff(byte_offsets(segments.text))
    if lengths.all():
        return segments
    keep = np.ones(len(segments.control), bool)
    keep[segments.control < 0] = lengths > 0
    kept = np.flatnonzero(keep)
    sample = segments.sample.take(kept)
    ends_turn = segments.ends_turn.take(kept)
    control = segments.control.take(kept)
    gone = np.flatnonzero(segments.ends_turn & ~keep)
    before = np.searchsorted(kept, gone) - 1
    ends_turn[before[_is_of(sample, before, segments.sample[gone])]] = True
    gone = np.flatnonzero((segments.control == TEXT_ALONE) & ~keep)
    behind = np.searchsorted(kept, gone)
    behind = behind[_is_of(sample, behind, segments.sample[gone])]
    control[behind[control[behind] < 0]] = TEXT_ALONE
    text = segments.text.filter(pa.array(lengths > 0))
    return replace(
        segments,
        text=text,
        control=control,
        weights=segments.weights.take(kept),
        ends_turn=ends_turn,
        sample=sample,
    )


def _is_of(
    sample: npt.NDArray[np.int64], at: npt.NDArray[np.int64], wanted: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Return whether n indices, which may lie outside, are of the samples `wanted`: (n,)."""
    inside = (at >= 0) & (at < len(sample))
    inside[inside] = sample[at[inside]] == wanted[inside]
    return inside
