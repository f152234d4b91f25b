"""Samples the memory of this process and its children while something runs."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil

if TYPE_CHECKING:
    from types import TracebackType


MOST_CPU = 0.01
"""Of one processor, this much is spent on looking."""


def tree_memory_bytes() -> int:
    """Give the sum over this process tree of PSS (proportional set size), in bytes.

    Where /proc/PID/smaps_rollup is missing (macOS), the sum of RSS, which counts shared pages once
    for every process.
    """
    me = psutil.Process()
    return sum(_memory_bytes(process) for process in [me, *me.children(recursive=True)])


def _memory_bytes(process: psutil.Process) -> int:
    try:
        for line in Path(f"/proc/{process.pid}/smaps_rollup").read_bytes().splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) << 10
    except OSError:
        pass
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


class PeakMemory:
    """A thread that notes the largest `tree_memory_bytes` while the context is open."""

    def __init__(self, interval_s: float = 0.1) -> None:
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.peak_bytes = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def sample(self) -> int:
        """Take a sample now, and give the peak so far."""
        self.peak_bytes = max(self.peak_bytes, tree_memory_bytes())
        return self.peak_bytes

    def _watch(self) -> None:
        pause_s = self._interval_s
        while not self._stop.wait(pause_s):
            start = time.thread_time()
            self.sample()
            # The system walks all pages of a process for its PSS: 5 ms for 500 MB.
            pause_s = max(self._interval_s, (time.thread_time() - start) / MOST_CPU)
