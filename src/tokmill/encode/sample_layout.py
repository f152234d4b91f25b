"""The segments of samples, laid out for encoding: pieces for an engine, items for the weights.

A piece is text that an engine gets as one document: adjacent text segments of one sample. An item
is what has one weight: a control token, or a part of a piece. Items of a piece meet at marks: there
the weight changes, or a turn ends. With boundary split pieces end where weights change, so that
marks are rare; with joint they are what has to be found in the tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tokmill.encode.cuts import WHITE_SPACE
from tokmill.encode.offsets import byte_offsets

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy.typing as npt

    from tokmill.batch import SampleBatch


TEXT_ALONE = -2
"""What stands for the control token of a text that begins with a token of its own."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Pieces and items of a batch, both in order; no piece and no item is empty.

    `pieces`: large_string of n_pieces texts. For each: `piece_sample` int64; `behind_text` and
    `behind_control` bool, by what stands before it in its sample.
    For each of n_items: `control` (int32, -1 for text), `weights` (float32), `sample` (int64),
    `ends_turn` (bool), `is_mark`: a text item that does not begin its piece.
    For each mark, in order: `mark_piece`, and `mark_bytes`: where in its piece it begins; int64.
    """

    pieces: pa.LargeStringArray
    piece_sample: npt.NDArray[np.int64]
    behind_text: npt.NDArray[np.bool_]
    behind_control: npt.NDArray[np.bool_]
    control: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]
    sample: npt.NDArray[np.int64]
    ends_turn: npt.NDArray[np.bool_]
    is_mark: npt.NDArray[np.bool_]
    mark_piece: npt.NDArray[np.int64]
    mark_bytes: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Segments:
    """Segments as flat arrays; `text` holds those of text alone."""

    text: pa.LargeStringArray
    control: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]
    ends_turn: npt.NDArray[np.bool_]
    sample: npt.NDArray[np.int64]


def lay_out(
    batch: SampleBatch,
    *,
    split: bool,
    strips_left: Collection[int] = (),
    strips_right: Collection[int] = (),
) -> Layout:
    """Lay the segments of a batch out.

    Args:
        batch: the samples.
        split: whether a piece ends where the weight changes.
        strips_left: ids of control tokens that swallow the white space before them.
        strips_right: ids of control tokens that swallow the white space behind them.
    """
    segments = _without_empty(_segments(batch, strips_left, strips_right))
    is_text = segments.control < 0
    follows = np.zeros(len(is_text), bool)
    same_sample = segments.sample[1:] == segments.sample[:-1]
    follows[1:] = is_text[1:] & is_text[:-1] & same_sample
    changes = np.zeros(len(is_text), bool)
    changes[1:] = segments.weights[1:] != segments.weights[:-1]
    alone = segments.control == TEXT_ALONE
    goes_on = follows & ~(alone | changes if split else alone)
    ends_turn = np.zeros(len(is_text), bool)
    ends_turn[1:] = segments.ends_turn[:-1]
    is_item = ~follows | changes | ends_turn | alone
    return _layout(segments, is_text, follows, goes_on, is_item)


def _layout(
    segments: _Segments,
    is_text: npt.NDArray[np.bool_],
    follows: npt.NDArray[np.bool_],
    goes_on: npt.NDArray[np.bool_],
    is_item: npt.NDArray[np.bool_],
) -> Layout:
    sample, text_segments = segments.sample, np.flatnonzero(is_text)
    offsets = byte_offsets(segments.text)
    begins_piece = ~goes_on.take(text_segments)
    first_text = np.flatnonzero(begins_piece)
    first_segment = text_segments.take(first_text)
    marked = np.flatnonzero(is_item.take(text_segments) & ~begins_piece)
    mark_piece = np.searchsorted(first_text, marked, "right") - 1
    items = np.flatnonzero(is_item)
    last_segment = np.append(items[1:], len(is_item))[: len(items)] - 1
    begins_sample = np.ones(len(sample), bool)
    begins_sample[1:] = sample[1:] != sample[:-1]
    behind_text = follows.take(first_segment)
    starts = offsets.take(first_text)
    return Layout(
        pieces=_column(segments.text, np.append(starts, offsets[-1])),
        piece_sample=sample.take(first_segment),
        behind_text=behind_text,
        behind_control=~(behind_text | begins_sample.take(first_segment)),
        control=segments.control.take(items),
        weights=segments.weights.take(items),
        sample=sample.take(items),
        ends_turn=segments.ends_turn.take(last_segment),
        is_mark=goes_on.take(items),
        mark_piece=mark_piece,
        mark_bytes=offsets.take(marked) - starts.take(mark_piece),
    )


def _column(text: pa.LargeStringArray, offsets: npt.NDArray[np.int64]) -> pa.LargeStringArray:
    """View the bytes of a column as other texts, cut at `offsets` of its buffer."""
    data = text.buffers()[2] or pa.py_buffer(b"")
    buffers = [None, pa.py_buffer(offsets), data]
    return pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers)


def _segments(
    batch: SampleBatch, strips_left: Collection[int], strips_right: Collection[int]
) -> _Segments:
    control = batch.control
    n_samples = len(batch.offsets) - 1
    sample = np.repeat(np.arange(n_samples), np.diff(batch.offsets))
    text = batch.text
    for strips, step in ((strips_right, 1), (strips_left, -1)):
        at = np.flatnonzero(np.isin(control, list(strips))) if strips else ()
        if len(at):
            text = _stripped(text, control < 0, sample, np.asarray(at), step)
    text = text.filter(pa.array(control < 0))
    return _Segments(text, control, batch.weights, batch.turn_ends, sample)


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
    import pyarrow.compute as pc

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


def _without_empty(segments: _Segments) -> _Segments:
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
    return _Segments(text, control, segments.weights.take(kept), ends_turn, sample)


def _is_of(
    sample: npt.NDArray[np.int64], at: npt.NDArray[np.int64], wanted: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Say of n indices, which may lie outside, whether they are of the samples `wanted`: (n,)."""
    inside = (at >= 0) & (at < len(sample))
    inside[inside] = sample[at[inside]] == wanted[inside]
    return inside
