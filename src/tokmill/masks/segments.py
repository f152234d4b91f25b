"""The segments of samples as flat arrays, ready to encode: white space stripped, none empty.

An added token with `lstrip` or `rstrip` strips the white space beside it, as `tokenizers` does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokmill.offsets import byte_offsets, starts_run, text_column
from tokmill.tokenizer.tokenizer_json import WHITE_SPACE
from tokmill.values import UNMERGED_TEXT

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy.typing as npt

    from tokmill.values import SampleBatch


@dataclass(frozen=True, slots=True)
class Segments:
    """The n segments of a batch; arrays as in `SampleBatch`, but for two.

    `text`: texts of the text segments alone. `sample`: (n,) int64, the sample of each segment.
    `stripped`: the samples whose trained white space was stripped, increasing.
    """

    text: pa.LargeStringArray
    control: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]
    turn_ends: npt.NDArray[np.bool_]
    sample: npt.NDArray[np.int64]
    stripped: npt.NDArray[np.int64]


def flat_segments(
    batch: SampleBatch, strips_left: Collection[int], strips_right: Collection[int]
) -> Segments:
    """Return the segments of a batch that are not empty; `strips_*`: see `SampleRules`."""
    control, text = batch.control, batch.text
    is_text = control < 0
    sample = np.repeat(np.arange(len(batch.offsets) - 1), np.diff(batch.offsets))
    stripped = np.zeros(0, np.int64)
    for strips, step in ((strips_right, 1), (strips_left, -1)):
        at = np.flatnonzero(np.isin(control, list(strips))) if strips else ()
        if len(at):
            shorter = _strip(text, is_text, sample, np.asarray(at), step)
            changed = _stripped_trained(batch, text, shorter, after=step == 1)
            stripped, text = np.union1d(stripped, sample[changed]), shorter
    text = text.filter(pa.array(is_text))
    return _drop_empty(Segments(text, control, batch.weights, batch.turn_ends, sample, stripped))


def cut_segments(segments: Segments, positions: npt.NDArray[np.int64]) -> Segments:
    """Return the segments with texts cut at `positions`, in bytes of the column.

    The text after a position must not merge with the text before it.
    """
    is_text = segments.control < 0
    offsets = byte_offsets(segments.text)
    edges = np.union1d(offsets, positions)
    n_parts = np.ones(len(is_text), np.int64)
    n_parts[is_text] = np.diff(np.searchsorted(edges, offsets))
    index = np.repeat(np.arange(len(is_text)), n_parts)
    control = segments.control[index]
    control[np.flatnonzero(control < 0)[np.isin(edges[:-1], positions)]] = UNMERGED_TEXT
    return replace(
        segments,
        text=text_column(segments.text, edges),
        control=control,
        weights=segments.weights[index],
        turn_ends=segments.turn_ends[index] & np.append(starts_run(index)[1:], True),
        sample=segments.sample[index],
    )


def _strip(
    text: pa.LargeStringArray,
    is_text: npt.NDArray[np.bool_],
    sample: npt.NDArray[np.int64],
    at: npt.NDArray[np.int64],
    step: int,
) -> pa.LargeStringArray:
    """Return the texts without the white space after (step 1) or before (-1) the segments `at`.

    Where a segment is white space only, the next one is stripped too.
    """
    trim = pc.utf8_ltrim if step == 1 else pc.utf8_rtrim
    while len(at):
        beside = at + step
        inside = (beside >= 0) & (beside < len(sample))
        at, beside = at[inside], beside[inside]
        at = beside[is_text[beside] & (sample[beside] == sample[at])]
        mask = np.zeros(len(sample), bool)
        mask[at] = True
        trimmed = trim(text.filter(pa.array(mask)), characters=WHITE_SPACE)
        text = pc.replace_with_mask(text, pa.array(mask), trimmed)
        at = at[np.diff(byte_offsets(text))[at] == 0]
    return text


def _stripped_trained(
    batch: SampleBatch, before: pa.LargeStringArray, stripped: pa.LargeStringArray, *, after: bool
) -> npt.NDArray[np.int64]:
    """Return the trained segments that became shorter.

    `after`: the white space after control tokens was stripped. White space
    after a trained control token belongs to the suffix of the turn and is not counted.
    """
    is_shorter = np.diff(byte_offsets(stripped)) < np.diff(byte_offsets(before))
    found = np.flatnonzero(is_shorter & (batch.weights > 0))
    if after:
        control = np.flatnonzero(batch.control >= 0)
        last_control = control[np.searchsorted(control, found) - 1]
        found = found[batch.weights[last_control] == 0]
    return found


def _drop_empty(segments: Segments) -> Segments:
    """Return the segments without empty texts.

    If an empty text ends a turn, the segment before it ends the turn instead. If it must not merge
    with the text before it, the text after it must not.
    """
    lengths = np.diff(byte_offsets(segments.text))
    if lengths.all():
        return segments
    keep = np.ones(len(segments.control), bool)
    keep[segments.control < 0] = lengths > 0
    kept = np.flatnonzero(keep)
    sample = segments.sample.take(kept)
    turn_ends = segments.turn_ends.take(kept)
    control = segments.control.take(kept)
    dropped = np.flatnonzero(segments.turn_ends & ~keep)
    before = np.searchsorted(kept, dropped) - 1
    turn_ends[before[_in_sample(sample, before, segments.sample[dropped])]] = True
    dropped = np.flatnonzero((segments.control == UNMERGED_TEXT) & ~keep)
    after = np.searchsorted(kept, dropped)
    after = after[_in_sample(sample, after, segments.sample[dropped])]
    control[after[control[after] < 0]] = UNMERGED_TEXT
    text = segments.text.filter(pa.array(lengths > 0))
    weights = segments.weights.take(kept)
    return Segments(text, control, weights, turn_ends, sample, segments.stripped)


def _in_sample(
    sample: npt.NDArray[np.int64], at: npt.NDArray[np.int64], wanted: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Return whether n indices, which may be out of range, lie in the samples `wanted`: (n,)."""
    inside = (at >= 0) & (at < len(sample))
    inside[inside] = sample[at[inside]] == wanted[inside]
    return inside
