"""Segments laid out for encoding, and the tokens and weights of samples from their tokens.

A text is what an engine encodes at once: adjacent text segments of one sample. A span has one
weight: a control token, or a part of a text. Two spans of one text meet at a boundary; there the
weight changes or a turn ends. With `split` a text also ends where the weight changes, so boundaries
are rare. With `joint`, they have to be found among the tokens of the text.

An added token with `lstrip` or `rstrip` strips the white space beside it, as `tokenizers` does.

A boundary is found among the tokens of its text by the sum of their byte lengths. Where the sum is
not the length of the text, because a normalizer changed it, the boundary is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tokmill.offsets import byte_offsets, indices_of, offsets_of, starts_run, text_column
from tokmill.tokenizer.tokenizer_json import WHITE_SPACE
from tokmill.values import UNMERGED_TEXT, SampleTokens

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy.typing as npt

    from tokmill.tokenizer.byte_lengths import ByteLengths
    from tokmill.values import SampleBatch, TokenBatch


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
    turn_ends = _moved_ends(batch.turn_ends, keep, sample)
    left = replace(
        batch,
        text=pa.array(texts, pa.large_string()).filter(pa.array(keep)),
        offsets=offsets_of(keep)[batch.offsets],
        control=batch.control[keep],
        weights=batch.weights[keep],
        turn_ends=turn_ends[keep],
    )
    return left, np.array(sorted(stripped), np.int64)


def _moved_ends(
    turn_ends: npt.NDArray[np.bool_], keep: npt.NDArray[np.bool_], sample: list[int]
) -> npt.NDArray[np.bool_]:
    """Return where turns end when segments go: at the last one of the sample before them."""
    ends = turn_ends.copy()
    for i in np.flatnonzero(~keep)[::-1].tolist():  # from behind: several may go, one by one
        if ends[i] and i > 0 and sample[i - 1] == sample[i]:
            ends[i - 1] = True
    return ends


@dataclass(frozen=True, slots=True)
class BoundaryTokens:
    """The tokens at n boundaries: (n,) int64 each, positions in the ids of all texts.

    The tokens `start:stop` straddle the boundary: they have bytes on both sides. `start` is the
    first token with a byte after the boundary. `is_known`: (n,) bool; where it is false, `start`
    and `stop` are the end of the text.
    """

    start: npt.NDArray[np.int64]
    stop: npt.NDArray[np.int64]
    is_known: npt.NDArray[np.bool_]


def find_boundaries(
    layout: Layout,
    tokens: TokenBatch,
    is_continuation: npt.NDArray[np.bool_],
    lengths: ByteLengths | None,
) -> BoundaryTokens:
    """Return the tokens at the boundaries of a layout, given the tokens of its texts.

    `is_continuation`: (n_texts,), whether a text was encoded as the continuation of another.
    `lengths`: None if not known. Boundaries are known in texts whose token lengths add up.
    """
    ends = tokens.offsets[layout.boundary_text + 1]
    if lengths is None or not len(ends):
        return BoundaryTokens(ends, ends, np.zeros(len(ends), bool))
    first_boundary = np.flatnonzero(starts_run(layout.boundary_text))
    texts = layout.boundary_text[first_boundary]
    n_boundaries = np.diff(np.append(first_boundary, len(layout.boundary_text)))
    prefix = np.where(is_continuation[texts], 0, lengths.n_prefix_bytes(layout.texts.take(texts)))
    n_bytes = np.diff(byte_offsets(layout.texts))[texts] + prefix
    # `clip` skips the check of every id: none is beyond the vocabulary.
    sums = offsets_of(lengths.lengths.take(tokens.ids, mode="clip"))
    before, end = sums[tokens.offsets[texts]], sums[tokens.offsets[texts + 1]]
    wanted = np.repeat(before + prefix, n_boundaries) + layout.boundary_bytes
    first = np.searchsorted(sums[1:], wanted, "right")
    after = first + (sums.take(first, mode="clip") < wanted)
    adds_up = np.repeat(end - before == n_bytes, n_boundaries)
    return BoundaryTokens(np.where(adds_up, first, ends), np.where(adds_up, after, ends), adds_up)


def assemble(
    layout: Layout,
    tokens: TokenBatch,
    boundaries: BoundaryTokens,
    n_samples: int,
    *,
    straddling: str,
) -> tuple[SampleTokens, npt.NDArray[np.int64]]:
    """Return the samples, and for each straddling token the sample that it is in.

    A token straddles if it has both trained and untrained bytes. With `straddling` = `mask` it has
    weight 0, otherwise the largest weight of its bytes. A sample may have no span.
    """
    is_control = layout.control >= 0
    lengths = np.ones(len(is_control), np.int64)
    lengths[~is_control] = np.diff(_text_starts(layout, tokens, boundaries))
    starts = offsets_of(lengths)
    ids = np.empty(int(starts[-1]), np.uint32)
    is_text = np.ones(len(ids), bool)
    is_text[starts[:-1][is_control]] = False
    ids[is_text] = tokens.ids
    ids[~is_text] = layout.control[is_control]
    weights = np.repeat(layout.weights, lengths)
    offsets = starts[np.searchsorted(layout.sample, np.arange(n_samples + 1))]
    mixed = _weigh_straddling(layout, boundaries, starts, weights, mask=straddling == "mask")
    weights[offsets[:-1][np.diff(offsets) > 0]] = 0
    samples = SampleTokens(ids, offsets, weights, _turn_ends(layout, boundaries, starts))
    return samples, np.searchsorted(offsets, mixed, "right") - 1


def _text_starts(
    layout: Layout, tokens: TokenBatch, boundaries: BoundaryTokens
) -> npt.NDArray[np.int64]:
    """Return where spans of text start in the ids of all texts: (n_spans_of_text + 1,)."""
    is_inner = layout.is_inner[layout.control < 0]
    starts = np.empty(len(is_inner) + 1, np.int64)
    starts[np.append(~is_inner, True)] = tokens.offsets
    starts[:-1][is_inner] = boundaries.start
    return starts


def _weigh_straddling(
    layout: Layout,
    boundaries: BoundaryTokens,
    starts: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float32],
    *,
    mask: bool,
) -> npt.NDArray[np.int64]:
    """Set the weights of tokens at boundaries; return those with trained and untrained bytes."""
    n_tokens = np.where(boundaries.is_known, boundaries.stop - boundaries.start, 0)
    straddled = np.flatnonzero(n_tokens)
    if not len(straddled):
        return straddled
    spans = np.flatnonzero(layout.is_inner)[straddled]
    n_tokens = n_tokens[straddled]
    positions, which = np.unique(indices_of(starts[spans], n_tokens), return_inverse=True)
    least = np.full(len(positions), np.inf, np.float32)
    most = np.full(len(positions), -np.inf, np.float32)
    for span in (spans - 1, spans):
        of_token = np.repeat(layout.weights[span], n_tokens)
        np.minimum.at(least, which, of_token)
        np.maximum.at(most, which, of_token)
    is_mixed = (least <= 0) & (most > 0)
    weights[positions] = np.where(is_mixed & mask, np.float32(0), most)
    mixed: npt.NDArray[np.int64] = positions[is_mixed]
    return mixed


def _turn_ends(
    layout: Layout, boundaries: BoundaryTokens, starts: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the known ends of turns, as positions in the ids: a straddling token is included."""
    ends = starts[1:].copy()
    is_known = np.ones(len(ends), bool)
    before_boundary = np.flatnonzero(layout.is_inner) - 1
    ends[before_boundary] += boundaries.stop - boundaries.start
    is_known[before_boundary] = boundaries.is_known
    ends = ends[layout.ends_turn & is_known]
    return ends[starts_run(ends)]
