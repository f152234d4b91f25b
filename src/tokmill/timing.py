"""Where the time of a piece of work went, stage by stage."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class StageTimer:
    """Times the stages of one thread's work; a stage begins where the one before ended."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = time.perf_counter()

    def end(self, stage: str) -> None:
        """Count the time since the last stage ended as this one's."""
        since = self._since
        self.skip()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + self._since - since

    def skip(self) -> None:
        """Leave the time since the last stage ended uncounted."""
        self._since = time.perf_counter()


def add_seconds(total: dict[str, float], more: Mapping[str, float]) -> None:
    """Add the seconds of each stage to those of a total."""
    for stage, seconds in more.items():
        total[stage] = total.get(stage, 0.0) + seconds
