"""The tokens and weights of samples, put together from the tokens of texts and control tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokmill.offsets import indices_of, offsets_of, starts_run
from tokmill.values import SampleTokens

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.masks.boundaries import BoundaryTokens
    from tokmill.masks.layout import Layout
    from tokmill.values import TokenBatch


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
    starts = _span_starts(layout, tokens, boundaries)
    ids = _insert_control(layout, tokens.ids, starts)
    weights = np.repeat(layout.weights, np.diff(starts))
    spans = np.searchsorted(layout.sample, np.arange(n_samples + 1))
    offsets = starts[spans]
    mixed = _weigh_straddling(layout, boundaries, starts, weights, mask=straddling == "mask")
    weights[offsets[:-1][np.diff(offsets) > 0]] = 0
    samples = SampleTokens(ids, offsets, weights, _turn_ends(layout, boundaries, starts))
    return samples, np.searchsorted(offsets, mixed, "right") - 1


def _span_starts(
    layout: Layout, tokens: TokenBatch, boundaries: BoundaryTokens
) -> npt.NDArray[np.int64]:
    """Return where spans start in the ids of all samples: (n_spans + 1,)."""
    text_starts = tokens.offsets
    text_spans = np.flatnonzero(layout.control < 0)
    if len(boundaries.start):
        is_inner = layout.is_inner.take(text_spans)
        text_starts = np.empty(len(text_spans) + 1, np.int64)
        text_starts[np.append(~is_inner, True)] = tokens.offsets
        text_starts[np.flatnonzero(is_inner)] = boundaries.start
    lengths = np.ones(len(layout.control), np.int64)
    lengths[text_spans] = text_starts[1:] - text_starts[:-1]
    return offsets_of(lengths)


def _insert_control(
    layout: Layout, text_ids: npt.NDArray[np.uint32], starts: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint32]:
    """Return the ids of texts with the control tokens between them."""
    control_spans = np.flatnonzero(layout.control >= 0)
    positions = starts.take(control_spans)
    is_text = np.ones(int(starts[-1]), bool)
    is_text[positions] = False
    ids = np.empty(len(is_text), np.uint32)
    ids[is_text] = text_ids
    ids[positions] = layout.control.take(control_spans)
    return ids


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
