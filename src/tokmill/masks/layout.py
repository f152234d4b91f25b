"""Segments laid out for encoding: texts for an engine, and spans of one weight.

A text is what an engine encodes at once: adjacent text segments of one sample. A span has one
weight: a control token, or a part of a text. Two spans of one text meet at a boundary; there the
weight changes or a turn ends. With `split` a text also ends where the weight changes, so boundaries
are rare. With `joint`, they have to be found among the tokens of the text.

An added token with `lstrip` or `rstrip` strips the white space beside it, as `tokenizers` does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

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
class SampleRules:
    """How samples are encoded.

    `boundary`: `split` or `joint`. `straddling`: how a token that straddles a joint boundary is
    treated: `train`, `mask` or `reject`. `after_control`: whether text after a control token is
    encoded as the `first` text or as a `continuation`. `strips_left`, `strips_right`: ids of the
    control tokens that strip the white space before and after them. `restart_pattern`: matches
    control tokens that are parsed in texts; a text ends after each match of a group, and the rest
    is encoded like the start of a text.
    """

    boundary: str
    straddling: str = "train"
    after_control: str = "first"
    strips_left: frozenset[int] = frozenset()
    strips_right: frozenset[int] = frozenset()
    restart_pattern: str = ""


@dataclass(frozen=True, slots=True)
class Layout:
    """The texts and spans of a batch, both in order and never empty.

    For each text: `text_sample` int64; `follows_text` and `follows_control` bool, by the segment
    before it in its sample; both are false for a text after a restart.
    For each span: `control` int32, below 0 for text; `weights` float32; `sample` int64; `ends_turn`
    bool; `is_inner` bool, whether it continues the text of the span before it.
    For each boundary, in order: `boundary_text` int64, its text; `boundary_bytes` int64, its
    position in the text.
    `stripped`: see `_Segments`.
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
    split = rules.boundary == "split"
    segments = _flat_segments(batch, rules.strips_left, rules.strips_right)
    joints = _joints(segments, split=split)
    if rules.restart_pattern:
        restarts = _find_restarts(segments, joints, rules.restart_pattern)
        if restarts:
            segments = _cut_segments(segments, np.array(restarts, np.int64))
            return _layout(segments, _joints(segments, split=split), restarts)
    return _layout(segments, joints, [])


class _Joints(NamedTuple):
    """Relation of each of n segments to the one before it: (n,) bool each.

    `follows_text`: text after text of the same sample. `continues`: belongs to the same text as the
    segment before. `starts_span`: its weight differs, a turn ended, or it is no text.
    """

    is_text: npt.NDArray[np.bool_]
    follows_text: npt.NDArray[np.bool_]
    continues: npt.NDArray[np.bool_]
    starts_span: npt.NDArray[np.bool_]


def _joints(segments: _Segments, *, split: bool) -> _Joints:
    """Return how segments join; with `split`, a text ends where the weight changes."""
    is_text = segments.control < 0
    follows_text = is_text & ~starts_run(segments.sample)
    follows_text[1:] &= is_text[:-1]
    changes = starts_run(segments.weights)
    unmerged = segments.control == UNMERGED_TEXT
    continues = follows_text & ~(unmerged | changes if split else unmerged)
    after_turn = np.zeros(len(is_text), bool)
    after_turn[1:] = segments.turn_ends[:-1]
    starts_span = ~follows_text | changes | after_turn | unmerged
    return _Joints(is_text, follows_text, continues, starts_span)


def _find_restarts(segments: _Segments, joints: _Joints, pattern: str) -> list[int]:
    """Return where texts restart, in bytes of the column of text: increasing.

    A tokenizer that puts a prefix before a text also puts it after some control tokens that it
    parses in the text; those are the groups of `pattern`.
    """
    offsets = byte_offsets(segments.text)
    starts = offsets[:-1][~joints.continues[joints.is_text]]
    texts = text_column(segments.text, np.append(starts, offsets[-1]))
    has_match = pc.match_substring_regex(texts, pattern).to_numpy(zero_copy_only=False)
    positions: list[int] = []
    for number in np.flatnonzero(has_match).tolist():
        text, start = texts[number].as_py(), int(starts[number])
        ends = [match.end() for match in re.finditer(pattern, text) if match.lastindex]
        positions += [start + len(text[:end].encode()) for end in ends]
    return positions


def _layout(segments: _Segments, joints: _Joints, restarts: list[int]) -> Layout:
    """Return the layout of segments; `restarts`: bytes of the column of text."""
    text_segments = np.flatnonzero(joints.is_text)
    offsets = byte_offsets(segments.text)
    starts_text = ~joints.continues.take(text_segments)
    first_text = np.flatnonzero(starts_text)
    first_segment = text_segments.take(first_text)
    boundaries = np.flatnonzero(joints.starts_span.take(text_segments) & ~starts_text)
    boundary_text = np.searchsorted(first_text, boundaries, "right") - 1
    spans = np.flatnonzero(joints.starts_span)
    last_segment = np.append(spans[1:], len(joints.is_text))[: len(spans)] - 1
    follows_text = joints.follows_text.take(first_segment)
    starts = offsets.take(first_text)
    return Layout(
        texts=text_column(segments.text, np.append(starts, offsets[-1])),
        text_sample=segments.sample.take(first_segment),
        follows_text=follows_text & ~np.isin(starts, restarts) if restarts else follows_text,
        follows_control=~(follows_text | starts_run(segments.sample).take(first_segment)),
        control=segments.control.take(spans),
        weights=segments.weights.take(spans),
        sample=segments.sample.take(spans),
        ends_turn=segments.turn_ends.take(last_segment),
        is_inner=joints.continues.take(spans),
        boundary_text=boundary_text,
        boundary_bytes=offsets.take(boundaries) - starts.take(boundary_text),
        stripped=segments.stripped,
    )


@dataclass(frozen=True, slots=True)
class _Segments:
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


def _flat_segments(
    batch: SampleBatch, strips_left: Collection[int], strips_right: Collection[int]
) -> _Segments:
    """Return the segments of a batch that are not empty; `strips_*`: see `SampleRules`."""
    control = batch.control
    sample = np.repeat(np.arange(len(batch.offsets) - 1), np.diff(batch.offsets))
    beside = [
        (at, step)
        for strips, step in ((strips_right, 1), (strips_left, -1))
        for at in (np.flatnonzero(np.isin(control, list(strips))).tolist() if strips else ())
    ]
    text, stripped = _strip(batch, sample.tolist(), beside) if beside else (batch.text, [])
    text = text.filter(pa.array(control < 0))
    return _drop_empty(
        _Segments(
            text, control, batch.weights, batch.turn_ends, sample, np.array(stripped, np.int64)
        )
    )


def _strip(
    batch: SampleBatch, sample: list[int], beside: list[tuple[int, int]]
) -> tuple[pa.LargeStringArray, list[int]]:
    """Return the texts without the white space after (1) or before (-1) some control tokens.

    Where a segment is white space only, the next one is stripped too. Also returns the samples
    whose trained white space was stripped, increasing. White space after a trained control token
    belongs to the suffix of the turn and is not counted.
    """
    texts, control, weights = batch.text.to_pylist(), batch.control.tolist(), batch.weights.tolist()
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
    return pa.array(texts, pa.large_string()), sorted(stripped)


def _cut_segments(segments: _Segments, positions: npt.NDArray[np.int64]) -> _Segments:
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


def _drop_empty(segments: _Segments) -> _Segments:
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
    return _Segments(text, control, weights, turn_ends, sample, segments.stripped)


def _in_sample(
    sample: npt.NDArray[np.int64], at: npt.NDArray[np.int64], wanted: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Return whether n indices, which may be out of range, lie in the samples `wanted`: (n,)."""
    inside = (at >= 0) & (at < len(sample))
    inside[inside] = sample[at[inside]] == wanted[inside]
    return inside
