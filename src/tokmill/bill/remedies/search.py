"""Search for the fewest savings that make settings fit, and for the largest number that fits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, groupby, product
from typing import Generic

from tokmill.bill.gpus import FITS, Need, verdict
from tokmill.bill.remedies.savings import S, Saving, options
from tokmill.errors import UsageError

MOST_TOGETHER = 3
"""Savings of a plan at most: with more of them, another machine is the better advice."""

_TOO_MUCH = Need(sys.maxsize, sys.maxsize)
"""The need of settings that contradict each other."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A saving that was applied and billed, and that needs less memory.

    `saved_bytes` and `peak_bytes` are expected amounts, the second one with the saving;
    `high_bytes` is its upper bound. `verdict`: whether it then fits.
    """

    name: str
    options: tuple[str, ...]
    saved_bytes: int
    peak_bytes: int
    high_bytes: int
    verdict: str


class Search(Generic[S]):
    """Computes the need of settings, each once, and compares it with the available memory.

    `available` are bytes, `shm_bytes` those of /dev/shm, 0 if it is not limited.
    """

    def __init__(self, need: Callable[[S], Need], available: int, shm_bytes: int = 0) -> None:
        self._need, self._available = need, (available, shm_bytes)
        self._known: dict[S, Need] = {}

    def fits(self, settings: S, *, surely: bool = False) -> bool:
        """Return whether the expected need of settings fits, or `surely` its upper bound.

        Settings that contradict each other do not fit.
        """
        need = self._need_of(settings)
        n_bytes = need.high_bytes if surely else need.n_bytes
        return verdict(Need(n_bytes, n_bytes, need.shm_bytes), *self._available) == FITS

    def offers(self, settings: S, savings: Iterable[Saving]) -> tuple[Offer, ...]:
        """Return the savings that need less memory, each applied alone.

        Of those of one name, the first that fits is taken, else the one that needs least.
        """
        offers = []
        for alike in _by_name(savings):
            fitting = (each for each in alike if self.fits(_with(settings, [each])))
            least = min(alike, key=lambda each: self._size(_with(settings, [each])))
            saving = next(fitting, least)
            if self._size(_with(settings, [saving])) < self._size(settings):
                offers.append(self._offer(saving, settings))
        return tuple(offers)

    def plan(self, settings: S, savings: Iterable[Saving]) -> tuple[Offer, ...]:
        """Return the fewest savings that make settings fit, () if they fit or none are enough.

        The order: savings of a low level before those of a higher one; an upper bound that fits
        before an expected need that does; few options before many; a cheap saving before a costly
        one.
        """
        if self.fits(settings, surely=True):
            return ()
        # One that needs as much alone may help beside others: another moment is then the peak.
        most = self._size(settings)
        helpful = [each for each in savings if self._size(_with(settings, [each])) <= most]
        goals = (True,) if self.fits(settings) else (True, False)
        for level, surely in product(sorted({each.level for each in helpful}), goals):
            for group in _groups(_by_name(each for each in helpful if each.level <= level)):
                chosen = self._mildest(settings, group, surely=surely)
                if chosen:
                    before = [_with(settings, chosen[:n]) for n in range(len(chosen))]
                    return tuple(map(self._offer, chosen, before))
        return ()

    def _mildest(self, settings: S, group: Sequence[list[Saving]], *, surely: bool) -> list[Saving]:
        """Return a saving of each list with which settings fit; [] if there are none.

        The lists stand in the order of their costs: of the last the mildest is taken.
        """
        if not self.fits(_with(settings, [alike[-1] for alike in group]), surely=surely):
            return []
        choices = (list(reversed(each)) for each in product(*reversed(group)))
        return next(each for each in choices if self.fits(_with(settings, each), surely=surely))

    def _need_of(self, settings: S) -> Need:
        if settings not in self._known:
            try:
                self._known[settings] = self._need(settings)
            except UsageError:
                self._known[settings] = _TOO_MUCH
        return self._known[settings]

    def _size(self, settings: S) -> tuple[int, int]:
        need = self._need_of(settings)
        return need.n_bytes, need.shm_bytes

    def _offer(self, saving: Saving, before: S) -> Offer:
        """Return a saving with its need, and what it saves of the need before."""
        need = self._need_of(_with(before, [saving]))
        return Offer(
            name=saving.name,
            options=options(saving.changes),
            saved_bytes=self._size(before)[0] - need.n_bytes,
            peak_bytes=need.n_bytes,
            high_bytes=need.high_bytes,
            verdict=verdict(need, *self._available),
        )


def _by_name(savings: Iterable[Saving]) -> list[list[Saving]]:
    """Return the savings of each name, which stand beside each other."""
    return [list(alike) for _, alike in groupby(savings, lambda saving: saving.name)]


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


def _with(settings: S, savings: Iterable[Saving]) -> S:
    """Return settings with the changes of savings."""
    for saving in savings:
        settings = replace(settings, **saving.changes)
    return settings


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
