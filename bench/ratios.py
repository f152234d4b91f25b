"""The arithmetic: throughputs, ratios pair by pair, and whether two did the same work."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.contenders import Comparison
    from bench.values import Sample, Timing

EQUAL_WITHIN = 0.001
"""A peer whose tokens differ by more did other work: its ratio is not given."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, least and greatest of some figures."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Return the spread of at least one figure."""
        figures = list(values)
        return cls(statistics.median(figures), min(figures), max(figures))


@dataclass(frozen=True, slots=True)
class Ratio:
    """What came of a comparison: `under` is the one of its candidates that was best."""

    comparison: Comparison
    under: str
    pairs: tuple[float, ...]
    spread: Spread

    @property
    def holds(self) -> bool | None:
        """Return whether the median reaches the goal; None where there is none."""
        goal = self.comparison.goal
        return None if goal is None else self.spread.median >= goal


def bytes_per_s(timing: Timing, *, own_clock: bool = False) -> float:
    """Return bytes of rendered text per second."""
    return timing.text_bytes / (timing.own_s if own_clock else timing.seconds)


def by_contender(samples: Sequence[Sample]) -> dict[str, dict[int, Timing]]:
    """Return the timings of one corpus and tokenizer by contender and round."""
    found: dict[str, dict[int, Timing]] = {}
    for sample in samples:
        found.setdefault(sample.contender, {})[sample.round] = sample.timing
    return found


def compare(comparison: Comparison, samples: Sequence[Sample]) -> Ratio | None:
    """Return the ratio of a comparison, or None where one side was left out.

    The best of `under` is the one with the highest median; the pairs are those of one round. One
    that ran in a single round, as slow peers and very first runs do, is held against every round.
    """
    found = by_contender(samples)
    over = found.get(comparison.over)
    candidates = [name for name in comparison.under if found.get(name)]
    if over is None or not candidates:
        return None
    best = max(
        candidates, key=lambda name: statistics.median(map(bytes_per_s, found[name].values()))
    )
    own = comparison.own_clock
    under = found[best]
    numbers = max(over, under, key=len)
    ours, theirs = _each_round(over, numbers), _each_round(under, numbers)
    pairs = tuple(
        bytes_per_s(ours[number], own_clock=own) / bytes_per_s(theirs[number], own_clock=own)
        for number in numbers
        if number in ours and number in theirs
    )
    return Ratio(comparison, best, pairs, Spread.of(pairs)) if pairs else None


def _each_round(timings: dict[int, Timing], numbers: Iterable[int]) -> dict[int, Timing]:
    """Return the timing for each of some rounds; of a contender that ran once, always that."""
    only = list(timings.values())
    return dict.fromkeys(numbers, only[0]) if len(only) == 1 else timings


def others_cores(samples: Sequence[Sample]) -> float:
    """Return how many cores other processes took while we measured: the mean over the timings."""
    notes = (sample.timing.notes for sample in samples)
    found = [float(note["others_cores"]) for note in notes if "others_cores" in note]
    return statistics.fmean(found) if found else 0.0


def token_difference(timing: Timing, ours: Timing) -> float:
    """Return by which share a contender's tokens per byte of text differ from tokmill's."""
    return timing.tokens * ours.text_bytes / (ours.tokens * timing.text_bytes) - 1
