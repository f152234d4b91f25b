"""Search for settings that fit: remedies alone, remedies together, and the largest number."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tokmill.bill.remedies.case import Case, Changes, difference, options
from tokmill.bill.remedies.table import Remedy, cost
from tokmill.bill.verdict import DOES_NOT_FIT, FITS, Need, Room, verdict
from tokmill.errors import UsageError
from tokmill.settings.training import TrainingSettings

Chosen = list[tuple[Remedy, tuple[Changes, ...]]]
"""Remedies, each with its candidates up to the one that is applied."""

_TOO_MUCH = Need(sys.maxsize, sys.maxsize)
"""The need of a case that contradicts itself."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A remedy that was applied and billed, and that saves memory.

    `saved_bytes` and `peak_bytes` are expected amounts, the second one with the remedy. `fits`:
    whether that amount fits.
    """

    name: str
    cost: str
    options: tuple[str, ...]
    saved_bytes: int
    peak_bytes: int
    fits: bool
    verdict: str


class Search:
    """Computes the need of cases, each once, and compares it with the available memory."""

    def __init__(self, need: Callable[[Case], Need], room: Room) -> None:
        self._need, self._room = need, room
        self._known: dict[tuple[int, TrainingSettings], Need] = {}

    def verdict(self, case: Case) -> str:
        """Return whether a case fits; a case that contradicts itself does not fit."""
        return verdict(self._need_of(case), self._room)

    def fits(self, case: Case) -> bool:
        """Return whether the expected need of a case fits."""
        return self.verdict(case) != DOES_NOT_FIT

    def offers(self, case: Case, remedies: Sequence[Remedy]) -> tuple[Offer, ...]:
        """Return the remedies that save memory, each applied alone.

        Of the candidates of a remedy, the first that fits is taken, else the one that needs least.
        """
        found = []
        for remedy in remedies:
            changes = self._best(case, remedy, self.fits)
            if changes is not None and self._size(case.having(changes)) < self._size(case):
                found.append(self._offer(remedy, case, case.having(changes)))
        return tuple(found)

    def plan(self, case: Case, remedies: Sequence[Remedy]) -> tuple[Offer, ...]:
        """Return the remedies that together make a case fit, () if none do or none are needed.

        If the expected need fits already, the upper bound shall fit too. Remedies that change the
        result of training are applied only if the others are not enough.
        """
        enough = self._fits_surely if self.fits(case) else self.fits
        same_result = [remedy for remedy in remedies if not remedy.changes_result]
        for allowed in () if enough(case) else (same_result, remedies):
            chosen = self._first_enough(case, allowed, enough)
            if chosen:
                return tuple(self._steps(case, self._mildest(case, chosen, enough)))
        return ()

    def _need_of(self, case: Case) -> Need:
        key = (id(case.model), case.training)  # hashing a model takes long
        if key not in self._known:
            try:
                self._known[key] = self._need(case)
            except UsageError:
                self._known[key] = _TOO_MUCH
        return self._known[key]

    def _size(self, case: Case) -> tuple[int, int]:
        need = self._need_of(case)
        return need.n_bytes, need.shm_bytes

    def _fits_surely(self, case: Case) -> bool:
        return self.verdict(case) == FITS

    def _best(self, case: Case, remedy: Remedy, enough: Callable[[Case], bool]) -> Changes | None:
        """Return the first candidate that is enough, else the one that needs least."""
        candidates = list(remedy.candidates(case))
        for changes in candidates:
            if enough(case.having(changes)):
                return changes
        return min(candidates, key=lambda each: self._size(case.having(each)), default=None)

    def _first_enough(
        self, case: Case, remedies: Sequence[Remedy], enough: Callable[[Case], bool]
    ) -> Chosen:
        """Return the remedies applied one after the other until they are enough; [] if never.

        A remedy that saves nothing yet is applied too: another moment of a step may be the peak.
        """
        chosen: Chosen = []
        for remedy in remedies:
            changes = self._best(case, remedy, enough)
            if changes is None or self._size(case.having(changes)) > self._size(case):
                continue
            candidates = tuple(remedy.candidates(case))
            chosen.append((remedy, candidates[: candidates.index(changes) + 1]))
            case = case.having(changes)
            if enough(case):
                return chosen
        return []

    def _mildest(self, case: Case, chosen: Chosen, enough: Callable[[Case], bool]) -> Chosen:
        """Return the same remedies, weakened or dropped while they are still enough.

        The costliest remedy is weakened first.
        """
        for at in reversed(range(len(chosen))):
            remedy, candidates = chosen[at]
            for n in range(len(candidates)):
                weaker = [*chosen[:at], (remedy, candidates[:n]), *chosen[at + 1 :]]
                if enough(_together(case, weaker)):
                    chosen = weaker
                    break
        return [each for each in chosen if each[1]]

    def _steps(self, case: Case, chosen: Chosen) -> Iterator[Offer]:
        for remedy, candidates in chosen:
            after = case.having(candidates[-1])
            yield self._offer(remedy, case, after)
            case = after

    def _offer(self, remedy: Remedy, before: Case, after: Case) -> Offer:
        changes, peak = difference(before, after), self._size(after)[0]
        return Offer(
            name=remedy.name,
            cost=cost(changes),
            options=options(changes),
            saved_bytes=self._size(before)[0] - peak,
            peak_bytes=peak,
            fits=self.fits(after),
            verdict=self.verdict(after),
        )


def _together(case: Case, chosen: Chosen) -> Case:
    for _, candidates in chosen:
        if candidates:
            case = case.having(candidates[-1])
    return case


def largest(fits: Callable[[int], bool], most: int) -> int:
    """Return the largest number up to `most` that fits, 0 if 1 does not.

    All numbers below one that fits are taken to fit too.
    """
    below, above = 0, 1
    while above <= most and fits(above):
        below, above = above, 2 * above
    above = min(above, most + 1)
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if fits(middle) else (below, middle)
    return below
