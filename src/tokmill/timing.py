"""Seconds of each stage of a thread's work."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class StageTimer:
    """Times the stages of one thread's work; each begins where the one before it ended."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = time.perf_counter()

    def end(self, stage: str) -> None:
        """Add the time since the last stage ended to this stage."""
        since = self._since
        self.skip()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + self._since - since

    def skip(self) -> None:
        """Begin the next stage now; the time since the last one is not counted."""
        self._since = time.perf_counter()


def add_seconds(total: dict[str, float], more: Mapping[str, float]) -> None:
    """Add the seconds of each stage to those of a total."""
    for stage, seconds in more.items():
        total[stage] = total.get(stage, 0.0) + seconds
