"""Samples of more than `max_tokens`: dropped, or cut together with their weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tokmill.dataset.counts import TOO_LONG, UNTRAINED
from tokmill.offsets import indices_of, offsets_of
from tokmill.values import SampleTokens

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Truncated:
    """The n samples within the limit; each has a trained token.

    `source`: (n,) int64, not decreasing: the sample that each came from. `is_cut`: (n,) bool,
    whether it is only a part of that sample. `dropped`: the samples of which nothing is left, by
    reason, in order. `untrained_windows`: the samples of windows that were left out because they
    have no trained token, once for each window.
    """

    samples: SampleTokens
    source: npt.NDArray[np.int64]
    is_cut: npt.NDArray[np.bool_]
    dropped: dict[str, npt.NDArray[np.int64]]
    untrained_windows: npt.NDArray[np.int64]

    def selected(self, chosen: npt.NDArray[np.int64]) -> Truncated:
        """Return the samples of the indices `chosen`."""
        return replace(
            self,
            samples=select_samples(self.samples, chosen),
            source=self.source[chosen],
            is_cut=self.is_cut[chosen],
        )


@dataclass(frozen=True, slots=True)
class _Ranges:
    """Parts of samples: tokens `start:stop` of sample `source`; (n,) int64 each.

    The first `n_repeated` tokens are also in the range before, so they are not trained here.
    """

    source: npt.NDArray[np.int64]
    start: npt.NDArray[np.int64]
    stop: npt.NDArray[np.int64]
    n_repeated: npt.NDArray[np.int64]


def truncate(samples: SampleTokens, max_tokens: int, rule: str, overlap: int = 0) -> Truncated:
    """Return samples of at most `max_tokens`; drop those without a trained token.

    Args:
        samples: n samples.
        max_tokens: the limit, or 0 for none.
        rule: `drop`; `drop-turns` cuts after the last trained turn that fits; `truncate-right`
            keeps the first tokens, `truncate-left` the last; `window` cuts into ranges of
            `max_tokens`, and trains each trained token in one of them.
        overlap: tokens that a window repeats from the one before, untrained, below `max_tokens`;
            at least one, since the first token of a sample is no target.
    """
    overlap = max(1, overlap)
    lengths = np.diff(samples.offsets)
    is_long = lengths > max_tokens if max_tokens else np.zeros(len(lengths), bool)
    if not is_long.any():
        return _drop_untrained(samples, np.arange(len(lengths)), {}, is_long)
    ranges = _ranges(samples, is_long, max_tokens, rule, overlap)
    too_long = np.setdiff1d(np.flatnonzero(is_long), ranges.source)
    dropped = {TOO_LONG: too_long} if len(too_long) else {}
    return _drop_untrained(_take(samples, ranges), ranges.source, dropped, is_long)


def select_samples(samples: SampleTokens, chosen: npt.NDArray[np.int64]) -> SampleTokens:
    """Return the samples of the indices `chosen`, (n,) int64."""
    start, stop = samples.offsets[chosen], samples.offsets[chosen + 1]
    return _take(samples, _Ranges(chosen, start, stop, np.zeros(len(chosen), np.int64)))


def _ranges(
    samples: SampleTokens, is_long: npt.NDArray[np.bool_], max_tokens: int, rule: str, overlap: int
) -> _Ranges:
    """Return the tokens that a rule keeps; with `window`, several ranges of a long sample."""
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
    else:  # drop-turns
        last = np.searchsorted(samples.turn_ends, start + max_tokens, "right")
        cut = np.concatenate([[-1], samples.turn_ends])[last]
        kept = ~is_long | (cut > start)
        stop = np.where(is_long, cut, stop)
    source = np.flatnonzero(kept)
    return _Ranges(source, start[kept], stop[kept], np.zeros(len(source), np.int64))


def _windows(
    start: npt.NDArray[np.int64], stop: npt.NDArray[np.int64], max_tokens: int, overlap: int
) -> _Ranges:
    """Return the windows of all samples; the last one of a sample may be shorter."""
    step = max_tokens - overlap
    n_windows = np.maximum(1, -(-(stop - start - overlap) // step))
    number = indices_of(np.zeros(len(start), np.int64), n_windows)
    source = np.repeat(np.arange(len(start)), n_windows)
    first = start[source] + number * step
    last = np.minimum(first + max_tokens, stop[source])
    return _Ranges(source, first, last, np.where(number > 0, overlap, 0))


def _take(samples: SampleTokens, ranges: _Ranges) -> SampleTokens:
    """Return the ranges as samples, with the ends of turns in them."""
    lengths = ranges.stop - ranges.start
    offsets, index = offsets_of(lengths), indices_of(ranges.start, lengths)
    weights = samples.weights[index]
    if ranges.n_repeated.any():
        weights[indices_of(offsets[:-1], ranges.n_repeated)] = 0
    weights[offsets[:-1][lengths > 0]] = 0
    first = np.searchsorted(samples.turn_ends, ranges.start, "right")
    n_ends = np.searchsorted(samples.turn_ends, ranges.stop, "right") - first
    shift = np.repeat(offsets[:-1] - ranges.start, n_ends)
    turn_ends = np.unique(samples.turn_ends[indices_of(first, n_ends)] + shift)
    return SampleTokens(samples.ids[index], offsets, weights, turn_ends)


def _drop_untrained(
    samples: SampleTokens,
    source: npt.NDArray[np.int64],
    dropped: dict[str, npt.NDArray[np.int64]],
    is_long: npt.NDArray[np.bool_],
) -> Truncated:
    """Return the samples with a trained token; the same object if all have one."""
    has_trained = np.diff(samples.offsets) > 0
    first = samples.offsets[:-1][has_trained]
    has_trained[has_trained] = np.maximum.reduceat(samples.weights, first) > 0
    untrained = np.zeros(0, np.int64)
    if not has_trained.all():
        gone = np.setdiff1d(source, source[has_trained])
        untrained = source[~has_trained & ~np.isin(source, gone)]
        if len(gone):
            dropped = {**dropped, UNTRAINED: gone}
        samples, source = select_samples(samples, np.flatnonzero(has_trained)), source[has_trained]
    return Truncated(samples, source, is_long[source], dropped, untrained)
