"""The tokens and weights of samples, from the tokens of texts and the boundaries within them.

A boundary is found among the tokens of its text by the sum of their byte lengths. Where the sum is
not the length of the text, because a normalizer changed it, the boundary is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokmill.offsets import byte_offsets, indices_of, offsets_of, starts_run
from tokmill.values import SampleTokens

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.masks.layout import Layout
    from tokmill.tokenizer.byte_lengths import ByteLengths
    from tokmill.values import TokenBatch


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
