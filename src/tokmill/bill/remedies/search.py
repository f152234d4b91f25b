"""Search for the fewest savings that make a case fit, and for the largest number that fits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Generic

from tokmill.bill.gpus import FITS, Need, verdict
from tokmill.bill.remedies.savings import Case, S, Saving, cost, options
from tokmill.errors import UsageError

MOST_TOGETHER = 3
"""Savings of a plan at most: with more of them, another machine is the better advice."""

_TOO_MUCH = Need(sys.maxsize, sys.maxsize)
"""The need of a case that contradicts itself."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A saving that was applied and billed, and that needs less memory.

    `saved_bytes` and `peak_bytes` are expected amounts, the second one with the saving;
    `high_bytes` is its upper bound. `verdict`: whether it then fits.
    """

    name: str
    cost: str
    options: tuple[str, ...]
    saved_bytes: int
    peak_bytes: int
    high_bytes: int
    verdict: str


class Search(Generic[S]):
    """Computes the need of cases, each once, and compares it with the available memory.

    `available` are bytes, `shm_bytes` those of /dev/shm, 0 if it is not limited.
    """

    def __init__(self, need: Callable[[Case[S]], Need], available: int, shm_bytes: int = 0) -> None:
        self._need, self._available = need, (available, shm_bytes)
        self._known: dict[tuple[int, S], Need] = {}

    def fits(self, case: Case[S], *, surely: bool = False) -> bool:
        """Return whether the expected need of a case fits, or `surely` its upper bound.

        A case that contradicts itself does not fit.
        """
        need = self._need_of(case)
        n_bytes = need.high_bytes if surely else need.n_bytes
        return verdict(Need(n_bytes, n_bytes, need.shm_bytes), *self._available) == FITS

    def offers(self, case: Case[S], savings: Iterable[Saving]) -> tuple[Offer, ...]:
        """Return the savings that need less memory, each applied alone.

        Of those of one name, the first that fits is taken, else the one that needs least.
        """
        offers = []
        for alike in _by_name(savings):
            fitting = (each for each in alike if self.fits(case.having(each.changes)))
            least = min(alike, key=lambda each: self._size(case.having(each.changes)))
            saving = next(fitting, least)
            if self._size(case.having(saving.changes)) < self._size(case):
                offers.append(self._offer(saving, case))
        return tuple(offers)

    def plan(self, case: Case[S], savings: Iterable[Saving]) -> tuple[Offer, ...]:
        """Return the fewest savings that make a case fit, () if it fits or none are enough.

        The order: savings of a low level before those of a higher one; an upper bound that fits
        before an expected need that does; few options before many; a cheap saving before a costly
        one.
        """
        if self.fits(case, surely=True):
            return ()
        # One that needs as much alone may help beside others: another moment is then the peak.
        most = self._size(case)
        helpful = [s for s in savings if self._size(case.having(s.changes)) <= most]
        goals = (True,) if self.fits(case) else (True, False)
        for level, surely in product(sorted({each.level for each in helpful}), goals):
            for group in _groups(_by_name(each for each in helpful if each.level <= level)):
                chosen = self._mildest(case, group, surely=surely)
                if chosen:
                    return tuple(self._steps(case, chosen))
        return ()

    def _mildest(
        self, case: Case[S], group: Sequence[list[Saving]], *, surely: bool
    ) -> list[Saving]:
        """Return a saving of each list with which a case fits; [] if there are none.

        The lists stand in the order of their costs: of the last the mildest is taken.
        """
        if not self.fits(_with(case, [alike[-1] for alike in group]), surely=surely):
            return []
        choices = (list(reversed(each)) for each in product(*reversed(group)))
        return next(each for each in choices if self.fits(_with(case, each), surely=surely))

    def _need_of(self, case: Case[S]) -> Need:
        key = (id(case.model), case.settings)  # hashing a model takes long
        if key not in self._known:
            try:
                self._known[key] = self._need(case)
            except UsageError:
                self._known[key] = _TOO_MUCH
        return self._known[key]

    def _size(self, case: Case[S]) -> tuple[int, int]:
        need = self._need_of(case)
        return need.n_bytes, need.shm_bytes

    def _steps(self, case: Case[S], savings: Iterable[Saving]) -> Iterator[Offer]:
        for saving in savings:
            yield self._offer(saving, case)
            case = case.having(saving.changes)

    def _offer(self, saving: Saving, before: Case[S]) -> Offer:
        """Return a saving with its need, and what it saves of the need before."""
        after = before.having(saving.changes)
        need = self._need_of(after)
        return Offer(
            name=saving.name,
            cost=cost(saving.changes),
            options=options(saving.changes),
            saved_bytes=self._size(before)[0] - need.n_bytes,
            peak_bytes=need.n_bytes,
            high_bytes=need.high_bytes,
            verdict=verdict(need, *self._available),
        )


def _by_name(savings: Iterable[Saving]) -> list[list[Saving]]:
    """Return the savings of each name, in the order of the first ones."""
    names: dict[str, list[Saving]] = {}
    for saving in savings:
        names.setdefault(saving.name, []).append(saving)
    return list(names.values())


def _groups(usable: list[list[Saving]]) -> list[tuple[list[Saving], ...]]:
    """Return the groups of up to MOST_TOGETHER names, in the order in which they are tried.

    `usable` stands in the order of costs; of two groups, the costliest savings decide.
    """
    sizes = range(1, MOST_TOGETHER + 1)
    groups = (group for n in sizes for group in combinations(range(len(usable)), n))
    names = [{name for each in alike for name in each.changes} for alike in usable]
    n_options = [min(len(each.changes) for each in alike) for alike in usable]
    apart = [
        group for group in groups
        if len(set().union(*(names[i] for i in group))) == sum(len(names[i]) for i in group)
    ]  # fmt: skip
    apart.sort(key=lambda group: (sum(n_options[i] for i in group), len(group), group[::-1]))
    return [tuple(usable[i] for i in group) for group in apart]


def _with(case: Case[S], savings: Iterable[Saving]) -> Case[S]:
    for saving in savings:
        case = case.having(saving.changes)
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
