"""Read the memory of a process and its children, and its peak while a run is going on."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Self

import psutil

PROC = Path("/proc")
MOST_CPU = 0.01
"""Share of one processor that sampling may take."""


def tree_memory_bytes() -> int:
    """Return the sum of PSS (proportional set size) over this process tree, in bytes.

    Where /proc/PID/smaps_rollup is missing (macOS), the sum of RSS, which counts shared pages once
    per process.
    """
    return sum(map(_memory_bytes, tree_of(os.getpid())))


def tree_of(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    try:
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.Error:
        return [pid]


def pss_by_kind(pid: int, proc: Path = PROC) -> dict[str, int]:
    """Return the fields of smaps_rollup of a process, such as `Pss` and `Pss_Anon`, in bytes.

    Raises:
        OSError: the process has ended, is a zombie, or may not be read.
    """
    lines = (proc / str(pid) / "smaps_rollup").read_text(encoding="utf-8").splitlines()
    rows = (line.split() for line in lines[1:])
    return {row[0].rstrip(":"): int(row[1]) << 10 for row in rows}


def rss_bytes(pid: int) -> int:
    """Return the RSS of a process; 0 if it has ended."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def _memory_bytes(pid: int) -> int:
    try:
        return pss_by_kind(pid)["Pss"]
    except (OSError, KeyError):
        return rss_bytes(pid)


class PeakMemory:
    """Samples `tree_memory_bytes` on a thread while the context is open, and keeps the largest."""

    def __init__(self, interval_s: float = 0.1) -> None:
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.peak_bytes = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def sample(self) -> int:
        """Take a sample now, and return the peak so far."""
        self.peak_bytes = max(self.peak_bytes, tree_memory_bytes())
        return self.peak_bytes

    def _watch(self) -> None:
        pause_s = self._interval_s
        while not self._stop.wait(pause_s):
            start = time.thread_time()
            self.sample()
            # For its PSS, the system walks all pages of a process: 5 ms for 500 MB.
            pause_s = max(self._interval_s, (time.thread_time() - start) / MOST_CPU)
