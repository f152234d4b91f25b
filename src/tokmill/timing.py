"""Seconds of each stage of a thread's work, and of the threads that libraries start."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


LIBRARIES = "threads of libraries"
"""A stage without seconds of the clock: what `library_cpu_s` found during a part."""

_TASKS = Path("/proc/self/task")


class StageSeconds(NamedTuple):
    """Seconds of a stage: of the clock, and of the processor for the thread that called.

    `since_s`: when the stage began for the first time, by `time.perf_counter`, which is one clock
    for all processes of a machine.
    """

    wall_s: float
    cpu_s: float
    since_s: float


class StageTimer:
    """Times the stages of one thread's work; each begins where the one before it ended."""

    def __init__(self) -> None:
        self.seconds: dict[str, StageSeconds] = {}
        self.skip()

    def end(self, stage: str) -> None:
        """Add the time since the last stage ended to this stage."""
        since_s, since_cpu_s = self._since_s, self._since_cpu_s
        self.skip()
        wall_s, cpu_s = self._since_s - since_s, self._since_cpu_s - since_cpu_s
        add_seconds(self.seconds, {stage: StageSeconds(wall_s, cpu_s, since_s)})

    def skip(self) -> None:
        """Begin the next stage now; the time since the last one is not counted."""
        self._since_s, self._since_cpu_s = time.perf_counter(), time.thread_time()


def add_seconds(total: dict[str, StageSeconds], more: Mapping[str, StageSeconds]) -> None:
    """Add the seconds of each stage to those of a total."""
    for stage, seconds in more.items():
        before = total.get(stage)
        if before is not None:
            seconds = StageSeconds(
                before.wall_s + seconds.wall_s,
                before.cpu_s + seconds.cpu_s,
                min(before.since_s, seconds.since_s),
            )
        total[stage] = seconds


def library_cpu_s(tasks: Path = _TASKS) -> float:
    """Return the CPU seconds of the threads of this process that Python does not know.

    An engine encodes partly on threads of its own: fastokens a third of English text. 0 without
    /proc.
    """
    known = {str(thread.native_id) for thread in threading.enumerate()}
    ticks = 0
    with suppress(OSError):
        for task in tasks.iterdir():
            with suppress(OSError):  # it has ended meanwhile
                if task.name not in known:
                    fields = (task / "stat").read_text().rpartition(")")[2].split()
                    ticks += int(fields[11]) + int(fields[12])  # user and system
    return ticks / os.sysconf("SC_CLK_TCK")
