"""Stops a run that is eating the wrong file."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tokmill.errors import RecordError
from tokmill.laps import add_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokmill.pipeline.plan import Plan
    from tokmill.pipeline.spec import Progress

FRACTION_CHECKED_FROM = 1000
REJECTS_ALLOWED = 10


class RejectWatch:
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
        n_rejects = self._reasons.total()
        if n_rejects <= self._limit * self._n_records:
            return
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in self._reasons.most_common(3))
        first = f"; the first: {self._first}" if self._first else ""
        raise RecordError(
            f"{n_rejects:,} of {self._n_records:,} records were rejected ({reasons}), more than "
            f"max_reject_fraction {self._limit:g} allows{first}; if that is the right input, "
            "raise --max-reject-fraction"
        )
