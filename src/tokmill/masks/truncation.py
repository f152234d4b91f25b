"""Samples that are too long: dropped, or cut so that tokens and weights stay together."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from tokmill.errors import UsageError
from tokmill.values import SampleTokens

if TYPE_CHECKING:
    import numpy.typing as npt

TOO_LONG = "more than max_tokens"
UNTRAINED = "no trained token"
CUT_SAMPLES = "cut samples"
"""Counts samples that are a part of a longer one: they may end with other ids than the rest."""


@dataclass(frozen=True, slots=True)
class Truncated:
    """Samples within the limit, each with a trained token.

    `samples`: n of them. `source`: (n,) int64, not decreasing: which sample each came from.
    `is_cut`: (n,) bool, whether it is not the whole of that one. `dropped`: samples of which
    nothing stays, by reason, in order. `untrained_windows`: which samples windows without a trained
    token came from that were left out, while others of the sample stay.
    """

    samples: SampleTokens
    source: npt.NDArray[np.int64]
    is_cut: npt.NDArray[np.bool_]
    dropped: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    untrained_windows: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def n_untrained_windows(self) -> int:
        """Give the number of windows without a trained token that were left out."""
        return len(self.untrained_windows)

    @property
    def n_cut(self) -> int:
        """Give the number of samples that were cut, and stay."""
        return len(np.unique(self.source[self.is_cut]))

    def selected(self, chosen: npt.NDArray[np.int64]) -> Truncated:
        """Give the samples of the indices `chosen`."""
        return replace(
            self,
            samples=selected(self.samples, chosen),
            source=self.source[chosen],
            is_cut=self.is_cut[chosen],
        )


@dataclass(frozen=True, slots=True)
class _Ranges:
    """What is kept of samples: tokens `start:stop` of sample `source`, the first `n_known` of them
    untrained because the range before has them too; (n,) int64 each."""  # noqa: D205, D209

    source: npt.NDArray[np.int64]
    start: npt.NDArray[np.int64]
    stop: npt.NDArray[np.int64]
    n_known: npt.NDArray[np.int64]


def truncate(samples: SampleTokens, max_tokens: int, rule: str, overlap: int = 0) -> Truncated:
    """Fit samples into a number of tokens, and drop those without a trained token.

    The weight of a sample's first token becomes 0 where it was not.

    Args:
        samples: n samples.
        max_tokens: the limit, or 0 for none.
        rule: `drop`; `drop-turns` cuts where the last trained turn that fits is complete;
            `truncate-right` keeps the first tokens, `truncate-left` the last; `window` cuts into
            ranges of `max_tokens`, each trained token trained in one.
        overlap: tokens that a window repeats of the one before, untrained; at least one, since
            the first token of a sample is no target.

    Raises:
        UsageError: the overlap leaves no room for a new token in a window.
    """
    if rule == "window" and max_tokens and max(1, overlap) >= max_tokens:
        raise UsageError(
            f"window_overlap: a window of max_tokens, {max_tokens}, that repeats "
            f"{max(1, overlap)} has no room for a new token; set it below {max_tokens - 1}"
        )
    lengths = np.diff(samples.offsets)
    is_long = lengths > max_tokens if max_tokens else np.zeros(len(lengths), bool)
    if not is_long.any():
        return _trained(samples, np.arange(len(lengths)), {}, is_long)
    ranges = _ranges(samples, is_long, max_tokens, rule, max(1, overlap))
    too_long = np.setdiff1d(np.flatnonzero(is_long), ranges.source)
    dropped = {TOO_LONG: too_long} if len(too_long) else {}
    return _trained(_gathered(samples, ranges), ranges.source, dropped, is_long)


def selected(samples: SampleTokens, chosen: npt.NDArray[np.int64]) -> SampleTokens:
    """Give the samples of the indices `chosen`, (n,) int64."""
    start, stop = samples.offsets[chosen], samples.offsets[chosen + 1]
    return _gathered(samples, _Ranges(chosen, start, stop, np.zeros(len(chosen), np.int64)))


def _ranges(
    samples: SampleTokens, is_long: npt.NDArray[np.bool_], max_tokens: int, rule: str, overlap: int
) -> _Ranges:
    start, stop = samples.offsets[:-1], samples.offsets[1:]
    if rule == "window":
        return _windows(start, stop, max_tokens, overlap)
    kept = np.ones(len(start), bool)
    if rule == "drop":
        kept = ~is_long
    elif rule == "truncate-right":
        stop = np.minimum(stop, start + max_tokens)
    elif rule == "truncate-left":
        start = np.maximum(start, stop - max_tokens)
    elif rule == "drop-turns":
        last = np.searchsorted(samples.turn_ends, start + max_tokens, "right")
        cut = np.concatenate([[-1], samples.turn_ends])[last]
        kept = ~is_long | (cut > start)
        stop = np.where(is_long, cut, stop)
    else:
        raise UsageError(f"too_long: no rule is called {rule!r}")
    source = np.flatnonzero(kept)
    return _Ranges(source, start[kept], stop[kept], np.zeros(len(source), np.int64))


def _windows(
    start: npt.NDArray[np.int64], stop: npt.NDArray[np.int64], max_tokens: int, overlap: int
) -> _Ranges:
    """Cut every sample into windows, the last of which may be shorter."""
    step = max_tokens - overlap
    n_windows = np.maximum(1, -(-(stop - start - overlap) // step))
    ends = np.cumsum(n_windows)
    number = np.arange(ends[-1]) - np.repeat(ends - n_windows, n_windows)
    source = np.repeat(np.arange(len(start)), n_windows)
    first = start[source] + number * step
    last = np.minimum(first + max_tokens, stop[source])
    return _Ranges(source, first, last, np.where(number > 0, overlap, 0))


def _gathered(samples: SampleTokens, ranges: _Ranges) -> SampleTokens:
    """Give the ranges as samples, the turn ends within them included."""
    offsets, index = _indices(ranges.start, ranges.stop)
    weights = samples.weights[index]
    if ranges.n_known.any():
        _, known = _indices(offsets[:-1], offsets[:-1] + ranges.n_known)
        weights[known] = 0
    first = np.searchsorted(samples.turn_ends, ranges.start, "right")
    last = np.searchsorted(samples.turn_ends, ranges.stop, "right")
    _, within = _indices(first, np.maximum(first, last))
    shift = np.repeat(offsets[:-1] - ranges.start, np.maximum(last - first, 0))
    return SampleTokens(
        samples.ids[index], offsets, weights, np.unique(samples.turn_ends[within] + shift)
    )


def _indices(
    start: npt.NDArray[np.int64], stop: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Give the offsets of ranges put end to end, (n + 1,), and all their indices."""
    offsets = np.zeros(len(start) + 1, np.int64)
    np.cumsum(stop - start, out=offsets[1:])
    return offsets, np.arange(offsets[-1]) + np.repeat(start - offsets[:-1], stop - start)


def _trained(
    samples: SampleTokens,
    source: npt.NDArray[np.int64],
    dropped: dict[str, npt.NDArray[np.int64]],
    is_long: npt.NDArray[np.bool_],
) -> Truncated:
    """Drop what has no trained token, and count; the very same samples where all stay."""
    samples = _without_first(samples)
    n_trained = np.concatenate([[0], np.cumsum(samples.weights > 0)])[samples.offsets]
    has_trained = np.diff(n_trained) > 0
    untrained = np.zeros(0, np.int64)
    if not has_trained.all():
        gone = np.setdiff1d(source, source[has_trained])
        untrained = source[~has_trained & ~np.isin(source, gone)]
        if len(gone):
            dropped = {**dropped, UNTRAINED: gone}
        samples, source = selected(samples, np.flatnonzero(has_trained)), source[has_trained]
    return Truncated(samples, source, is_long[source], dropped, untrained)


def _without_first(samples: SampleTokens) -> SampleTokens:
    """Give samples whose first tokens have no weight; the same ones where that is so."""
    first = samples.offsets[:-1][np.diff(samples.offsets) > 0]
    if not samples.weights[first].any():
        return samples
    weights = samples.weights.copy()
    weights[first] = 0
    return SampleTokens(samples.ids, samples.offsets, weights, samples.turn_ends)
