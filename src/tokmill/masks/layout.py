"""The segments of samples, laid out for encoding: pieces for an engine, items for the weights.

A piece is text that an engine gets as one document: adjacent text segments of one sample. An item
is what has one weight: a control token, or a part of a piece. Items of a piece meet at marks: there
the weight changes, or a turn ends. With boundary split pieces end where weights change, so that
marks are rare; with joint they are what has to be found in the tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokmill.masks.closed_text import cut_at, find_closed
from tokmill.masks.segments import TEXT_ALONE, segments_of
from tokmill.offsets import byte_offsets, text_column

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy.typing as npt
    import pyarrow as pa

    from tokmill.masks.segments import TextSegments
    from tokmill.values import SampleBatch


_NOWHERE = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Layout:
    """Pieces and items of a batch, both in order; no piece and no item is empty.

    `pieces`: large_string of n_pieces texts. For each: `piece_sample` int64; `behind_text` and
    `behind_control` bool, by what stands before it in its sample: a closed text is neither.
    For each of n_items: `control` (int32, -1 for text), `weights` (float32), `sample` (int64),
    `ends_turn` (bool), `is_mark`: a text item that does not begin its piece.
    For each mark, in order: `mark_piece`, and `mark_bytes`: where in its piece it begins; int64.
    `swallowed`: the samples that lost trained white space to a control token beside it, in order.
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
    swallowed: npt.NDArray[np.int64]


def lay_out(
    batch: SampleBatch,
    *,
    split: bool,
    strips_left: Collection[int] = (),
    strips_right: Collection[int] = (),
    closed: str = "",
) -> Layout:
    """Lay the segments of a batch out.

    Args:
        batch: the samples.
        split: whether a piece ends where the weight changes.
        strips_left: ids of control tokens that swallow the white space before them.
        strips_right: ids of control tokens that swallow the white space behind them.
        closed: what closes a text, see `closed_texts`: there a piece ends, and none goes on.
    """
    segments = segments_of(batch, strips_left, strips_right)
    joints = _joints(segments, split=split)
    closed_at = find_closed(segments, joints.goes_on, closed) if closed else _NOWHERE
    if len(closed_at):
        segments = cut_at(segments, closed_at)
        joints = _joints(segments, split=split)
    return _layout(segments, joints, closed_at)


class _Joints(NamedTuple):
    """What stands at the beginning of n segments: (n,) bool each.

    `is_text`: of the segment itself. `follows`: it is text behind text. `goes_on`: that of its own
    piece. `is_item`: it begins an item.
    """

    is_text: npt.NDArray[np.bool_]
    follows: npt.NDArray[np.bool_]
    goes_on: npt.NDArray[np.bool_]
    is_item: npt.NDArray[np.bool_]


def _joints(segments: TextSegments, *, split: bool) -> _Joints:
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
    return _Joints(is_text, follows, goes_on, ~follows | changes | ends_turn | alone)


def _layout(segments: TextSegments, joints: _Joints, closed_at: npt.NDArray[np.int64]) -> Layout:
    is_text, follows, goes_on, is_item = joints
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
        pieces=text_column(segments.text, np.append(starts, offsets[-1])),
        piece_sample=sample.take(first_segment),
        behind_text=behind_text & ~np.isin(starts, closed_at) if len(closed_at) else behind_text,
        behind_control=~(behind_text | begins_sample.take(first_segment)),
        control=segments.control.take(items),
        weights=segments.weights.take(items),
        sample=sample.take(items),
        ends_turn=segments.ends_turn.take(last_segment),
        is_mark=goes_on.take(items),
        mark_piece=mark_piece,
        mark_bytes=offsets.take(marked) - starts.take(mark_piece),
        swallowed=segments.swallowed,
    )
