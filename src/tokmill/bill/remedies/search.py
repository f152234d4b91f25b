"""Search for what fits: remedies one by one, together, and the largest number that still fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokmill.bill.remedies.case import difference, options
from tokmill.bill.remedies.table import cost
from tokmill.bill.verdict import DOES_NOT_FIT, FITS, Need, Room, verdict
from tokmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tokmill.bill.remedies.case import Case, Changes
    from tokmill.bill.remedies.table import Remedy
    from tokmill.settings.training import TrainingSettings


@dataclass(frozen=True, slots=True)
class Offer:
    """A remedy that was applied and billed, and needs less than before.

    `saved_bytes` is how much less is expected, `peak_bytes` what is then expected; `verdict` that
    of the changed case, `fits` whether its expected need does.
    """

    name: str
    cost: str
    options: tuple[str, ...]
    saved_bytes: int
    peak_bytes: int
    fits: bool
    verdict: str


class Search:
    """Bills cases, each once, and compares them with the memory that there is."""

    def __init__(self, need: Callable[[Case], Need], room: Room) -> None:
        self._need, self._room = need, room
        self._known: dict[tuple[int, TrainingSettings], Need | None] = {}

    def need(self, case: Case) -> Need | None:
        """Return what a case needs, None if it contradicts itself."""
        key = (id(case.model), case.training)  # a model is long to hash
        if key not in self._known:
            try:
                self._known[key] = self._need(case)
            except UsageError:
                self._known[key] = None
        return self._known[key]

    def verdict(self, case: Case) -> str:
        """Return whether a case fits; one that contradicts itself does not."""
        need = self.need(case)
        return DOES_NOT_FIT if need is None else verdict(need, self._room)

    def offers(self, case: Case, remedies: Sequence[Remedy]) -> tuple[Offer, ...]:
        """Return each remedy applied alone, at its mildest that fits or else at its strongest."""
        found = []
        for remedy in remedies:
            changes = self._best(case, remedy, self.fits)
            if changes is not None and self._is_less(case.having(changes), case):
                found.append(self._offer(remedy, case, case.having(changes)))
        return tuple(found)

    def plan(self, case: Case, remedies: Sequence[Remedy]) -> tuple[Offer, ...]:
        """Return the remedies that together make a case fit, () if none do or none are needed.

        The expected need shall fit, and where it does already, the upper bound. Remedies that
        change what is trained are taken only if the others are not enough.
        """
        enough = self._fits_surely if self.fits(case) else self.fits
        same_result = [remedy for remedy in remedies if not remedy.changes_result]
        for allowed in () if enough(case) else (same_result, remedies):
            chosen = self._first_enough(case, allowed, enough)
            if chosen:
                return tuple(self._steps(case, self._mildest(case, chosen, enough)))
        return ()

    def fits(self, case: Case) -> bool:
        """Return whether the expected need of a case fits."""
        return self.verdict(case) != DOES_NOT_FIT

    def _fits_surely(self, case: Case) -> bool:
        return self.verdict(case) == FITS

    def _is_less(self, after: Case, before: Case) -> bool:
        old, new = self.need(before), self.need(after)
        if old is None or new is None:
            return False
        return (new.n_bytes, new.shm_bytes) < (old.n_bytes, old.shm_bytes)

    def _best(self, case: Case, remedy: Remedy, enough: Callable[[Case], bool]) -> Changes | None:
        """Return the mildest candidate that is enough, else the one that needs least."""
        possible = [
            each for each in remedy.candidates(case) if self.need(case.having(each)) is not None
        ]
        for changes in possible:
            if enough(case.having(changes)):
                return changes
        return min(possible, key=lambda each: self._size(case.having(each)), default=None)

    def _size(self, case: Case) -> tuple[int, int]:
        need = self.need(case)
        assert need is not None
        return need.n_bytes, need.shm_bytes

    def _first_enough(
        self, case: Case, remedies: Sequence[Remedy], enough: Callable[[Case], bool]
    ) -> _Chosen:
        """Apply remedies on top of one another until it is enough; return none if it never is.

        What saves nothing yet is applied too: another moment of a step may be the peak.
        """
        chosen: _Chosen = []
        for remedy in remedies:
            changes = self._best(case, remedy, enough)
            if changes is None or self._is_less(case, case.having(changes)):
                continue
            candidates = tuple(remedy.candidates(case))
            chosen.append((remedy, candidates[: candidates.index(changes) + 1]))
            case = case.having(changes)
            if enough(case):
                return chosen
        return []

    def _mildest(self, case: Case, chosen: _Chosen, enough: Callable[[Case], bool]) -> _Chosen:
        """Weaken or drop what the others can do without, the costliest first."""
        for at in reversed(range(len(chosen))):
            remedy, candidates = chosen[at]
            for n in range(len(candidates)):
                weaker = [*chosen[:at], (remedy, candidates[:n]), *chosen[at + 1 :]]
                if enough(self._together(case, weaker)):
                    chosen = weaker
                    break
        return [each for each in chosen if each[1]]

    def _together(self, case: Case, chosen: _Chosen) -> Case:
        for _, candidates in chosen:
            if candidates:
                case = case.having(candidates[-1])
        return case

    def _steps(self, case: Case, chosen: _Chosen) -> Iterator[Offer]:
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


if TYPE_CHECKING:
    _Chosen = list[tuple[Remedy, tuple[Changes, ...]]]
    """Remedies, each with its candidates up to the one that is taken."""


def largest(fits: Callable[[int], bool], most: int) -> int:
    """Return the largest number up to `most` that fits, 0 if 1 does not; what is less fits too."""
    below, above = 0, 1
    while above <= most and fits(above):
        below, above = above, 2 * above
    above = min(above, most + 1)
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if fits(middle) else (below, middle)
    return below
