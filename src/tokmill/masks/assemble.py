"""Tokens and weights of samples, put together from pieces, items and marks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokmill.values import SampleTokens

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.masks.boundaries import BoundaryTokens
    from tokmill.masks.layout import Layout
    from tokmill.values import TokenBatch


def assemble(
    layout: Layout, tokens: TokenBatch, marks: BoundaryTokens, n_samples: int, *, straddling: str
) -> tuple[SampleTokens, npt.NDArray[np.int64]]:
    """Put samples together, and say which of them have straddling tokens: once for each token.

    Args:
        layout: the items.
        tokens: of the layout's pieces.
        marks: where the items of a piece meet; an unknown one has all tokens before it.
        n_samples: in the batch; a sample may have no item.
        straddling: `mask` gives a token that has trained and untrained bytes the weight 0; else it
            has the largest weight of its bytes.
    """
    starts = _item_starts(layout, tokens, marks)
    ids = _with_control(layout, tokens.ids, starts)
    weights = np.repeat(layout.weights, np.diff(starts))
    items = np.searchsorted(layout.sample, np.arange(n_samples + 1))
    offsets = starts[items]
    mixed = _weigh_straddling(layout, marks, starts, weights, mask=straddling == "mask")
    weights[offsets[:-1][np.diff(offsets) > 0]] = 0
    sample_tokens = SampleTokens(ids, offsets, weights, _turn_ends(layout, marks, starts))
    return sample_tokens, np.searchsorted(offsets, mixed, "right") - 1


def _item_starts(
    layout: Layout, tokens: TokenBatch, marks: BoundaryTokens
) -> npt.NDArray[np.int64]:
    """Give where items begin in the ids of all samples: (n_items + 1,)."""
    text_starts = tokens.offsets
    is_text = layout.control < 0
    text_items = np.flatnonzero(is_text)
    if len(marks.first):
        is_mark = layout.is_mark.take(text_items)
        text_starts = np.empty(len(text_items) + 1, np.int64)
        text_starts[np.append(~is_mark, True)] = tokens.offsets
        text_starts[np.flatnonzero(is_mark)] = marks.first
    lengths = np.ones(len(is_text), np.int64)
    lengths[text_items] = text_starts[1:] - text_starts[:-1]
    starts = np.zeros(len(is_text) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


def _with_control(
    layout: Layout, text_ids: npt.NDArray[np.uint32], starts: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint32]:
    """Give the ids of text with those of control tokens between them."""
    control_items = np.flatnonzero(layout.control >= 0)
    positions = starts.take(control_items)
    is_text = np.ones(int(starts[-1]), bool)
    is_text[positions] = False
    ids = np.empty(len(is_text), np.uint32)
    ids[is_text] = text_ids
    ids[positions] = layout.control.take(control_items)
    return ids


def _weigh_straddling(
    layout: Layout,
    marks: BoundaryTokens,
    starts: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float32],
    *,
    mask: bool,
) -> npt.NDArray[np.int64]:
    """Weigh the tokens that straddle marks, and give those with trained and untrained bytes."""
    n_tokens = np.where(marks.is_known, marks.first_behind - marks.first, 0)
    straddled = np.flatnonzero(n_tokens)
    if not len(straddled):
        return straddled
    items = np.flatnonzero(layout.is_mark)[straddled]
    n_tokens = n_tokens[straddled]
    ends = np.cumsum(n_tokens)
    within = np.arange(ends[-1]) - np.repeat(ends - n_tokens, n_tokens)
    positions, which = np.unique(np.repeat(starts[items], n_tokens) + within, return_inverse=True)
    least = np.full(len(positions), np.inf, np.float32)
    most = np.full(len(positions), -np.inf, np.float32)
    for item in (items - 1, items):
        of_token = np.repeat(layout.weights[item], n_tokens)
        np.minimum.at(least, which, of_token)
        np.maximum.at(most, which, of_token)
    is_mixed = (least <= 0) & (most > 0)
    weights[positions] = np.where(is_mixed & mask, np.float32(0), most)
    mixed: npt.NDArray[np.int64] = positions[is_mixed]
    return mixed


def _turn_ends(
    layout: Layout, marks: BoundaryTokens, starts: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Give the token boundaries at which, or right behind which, turns end; of those known."""
    ends = starts[1:].copy()
    is_known = np.ones(len(ends), bool)
    before_mark = np.flatnonzero(layout.is_mark) - 1
    ends[before_mark] += marks.first_behind - marks.first
    is_known[before_mark] = marks.is_known
    return without_repeats(ends[layout.ends_turn & is_known])


def without_repeats(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Give each of n values that do not decrease once."""
    is_new = np.ones(len(values), bool)
    is_new[1:] = values[1:] != values[:-1]
    return values[is_new]
