"""Stops a run that is eating the wrong file."""

from __future__ import annotations

from collections import Counter
from math import comb
from typing import TYPE_CHECKING

from tokmill.errors import RecordError, UnreadInputError
from tokmill.timing import add_seconds
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokmill.recipes.spec import Progress
    from tokmill.run.forecast.sample import InputSample
    from tokmill.run.plan import Plan
    from tokmill.settings.schema import LimitSettings

FRACTION_CHECKED_FROM = 1000
REJECTS_ALLOWED = 10


_CHANCE = 0.01
"""A sample of few rejects must be less likely than this, were the share of rejects allowed."""


class RejectLimit:
    """Sums progress, and stops a run that is eating the wrong file.

    `text_bytes`: rendered by this run. `stage_s`: seconds of all its threads, by stage.
    """

    def __init__(self, plan: Plan, forward: Callable[[Progress], None]) -> None:
        self._limit = plan.spec.config.limits.max_reject_fraction
        self._forward = forward
        self._n_records = 0
        self._reasons: Counter[str] = Counter()
        self._first = ""
        self.text_bytes = 0
        self.stage_s: dict[str, float] = {}

    def progressed(self, progress: Progress) -> None:
        """Take increments; raises `RecordError` from 1,000 records on."""
        self._n_records += progress.records
        self._reasons.update(progress.rejects)
        self._first = self._first or progress.first_reject
        self.text_bytes += 0 if progress.resumed else progress.text_bytes
        add_seconds(self.stage_s, progress.stage_s)
        self._forward(progress)
        if self._n_records >= FRACTION_CHECKED_FROM:
            self._check()

    def check_at_end(self) -> None:
        """Check a run of any size, if it has more than 10 rejects; raises `RecordError`."""
        if self._reasons.total() > REJECTS_ALLOWED:
            self._check()

    def _check(self) -> None:
        if self._reasons.total() > self._limit * self._n_records:
            raise RecordError(
                _too_many(
                    self._reasons, plural(self._n_records, "record"), self._limit, self._first
                )
            )


def check_sample(limits: LimitSettings, found: InputSample, n_records: int) -> None:
    """Raise `RecordError` if the run would stop: a sample of its `n_records` says so."""
    if found.unread and limits.on_unread == "error":
        raise UnreadInputError(
            f"the run would fail: {found.unread[0]}; --on-unread skip does without what is lost",
            tuple(found.unread),
        )
    n_rejects, n_sampled = found.n_rejects, found.n_rejects + len(found.texts)
    if n_rejects and limits.on_error == "fail":
        raise RecordError(f"the run would stop at a broken record: {found.first_reject}")
    allowed = limits.max_reject_fraction
    if n_rejects <= allowed * n_sampled:
        return
    if n_rejects <= REJECTS_ALLOWED:
        if n_rejects * n_records <= REJECTS_ALLOWED * n_sampled:
            return
        fewer = (
            comb(n_sampled, k) * allowed**k * (1 - allowed) ** (n_sampled - k)
            for k in range(n_rejects)
        )
        if 1 - sum(fewer) > _CHANCE:
            return
    sampled = plural(n_sampled, "sampled record")
    raise RecordError(
        f"the run would stop: {_too_many(found.rejects, sampled, allowed, found.first_reject)}"
    )


def _too_many(reasons: Counter[str], records: str, allowed: float, first: str) -> str:
    named = ", ".join(f"{n:,} {reason}" for reason, n in reasons.most_common(3))
    first = f"; the first: {first}" if first else ""
    return (
        f"{reasons.total():,} of {records} {'was' if reasons.total() == 1 else 'were'} rejected "
        f"({named}), more than --max-reject-fraction {allowed:g} allows{first}; if that is the "
        "right input, raise it"
    )
