"""Measure the memory that a tree of processes has committed: anonymous, shared, and file pages.

RSS and USS mislead if files are mapped or pages are shared, so the figures are sums of
proportional shares (PSS) from /proc/PID/smaps_rollup.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Self

import psutil

from tokmill.errors import UsageError

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


SHM = Path("/dev/shm")  # noqa: S108 where shared memory lives, not a temporary file
INTERVAL_S = 0.002
"""Time between two samples; a sample takes 0.1 ms per process."""

EXACT_S = 0.1
"""Time between two exact samples; the cheap counters miss pages that are copied on write."""
STILL_BYTES = 1 << 20
"""If memory grows more than this during an exact sample, the sample is discarded."""
TREE_S = 0.05
"""Time between two searches for processes of the tree."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Memory of a tree of processes, in bytes.

    `anonymous` and `shared` cannot be reclaimed; `file` is mapped page cache. If only RSS is known
    (`exact` is false), all of it is in `anonymous`, with shared pages counted once per process.
    """

    anonymous: int = 0
    shared: int = 0
    file: int = 0
    exact: bool = True

    @property
    def committed(self) -> int:
        """Return the memory that the system must provide: anonymous and shared."""
        return self.anonymous + self.shared


def tree_usage(pids: list[int], proc: Path = PROC) -> Usage:
    """Return the sum of the memory of processes; a process that has ended adds nothing.

    Shared memory counts even while no process maps it: a batch on its way from a worker to the
    trainer is only an open file in /dev/shm. Where the system has no proportional shares by kind
    (macOS, gVisor, Linux before 5.4), only RSS is read.

    Raises:
        UsageError: the system does not permit to read it.
    """
    if not _has_shares(proc):
        return Usage(anonymous=sum(map(rss_bytes, pids)), exact=False)
    anonymous = mapped = file = 0
    opened: dict[int, int] = {}
    device = SHM.stat().st_dev if SHM.exists() else -1
    for pid in pids:
        found = _shares(pid, proc)
        anonymous += found.get("Pss_Anon", 0)
        mapped += found.get("Pss_Shmem", 0)
        file += found.get("Pss_File", 0)
        opened |= _shared_files(pid, device)
    return Usage(anonymous, max(mapped, sum(opened.values())), file)


@cache
def _has_shares(proc: Path) -> bool:
    try:
        return "Pss_Anon:" in (proc / "self" / "smaps_rollup").read_text(encoding="utf-8")
    except PermissionError:  # the error comes when it is read
        return True
    except OSError:
        return False


def _shares(pid: int, proc: Path) -> dict[str, int]:
    """Return the shares of a process by kind, in bytes; nothing if it has ended."""
    try:
        return pss_by_kind(pid, proc)
    except PermissionError:
        raise UsageError(
            f"{proc / str(pid) / 'smaps_rollup'}: no permission to read memory details "
            "(expected in a container without ptrace): measure outside of it, or leave out "
            "--measure"
        ) from None
    except OSError:  # it has just ended, or is a zombie
        return {}


def _shared_files(pid: int, device: int) -> dict[int, int]:
    """Return the bytes of the open files of a process in /dev/shm, by inode."""
    found = {}
    try:
        for descriptor in (PROC / str(pid) / "fd").iterdir():
            try:
                state = descriptor.stat()
            except OSError:
                continue
            if state.st_dev == device:
                found[state.st_ino] = state.st_blocks * 512
    except OSError:
        return {}
    return found


def _cheap_bytes(pids: list[int]) -> int:
    """Return anonymous memory from cheap counters; pages shared by a fork count in each process."""
    total = 0
    for pid in pids:
        try:
            _, resident, mapped, *_ = (PROC / str(pid) / "statm").read_text("utf-8").split()
        except OSError:
            continue
        total += int(resident) - int(mapped)
    return total * os.sysconf("SC_PAGE_SIZE")


class Watch:
    """Samples a tree of processes on a thread and keeps the largest `Usage.committed`.

    It takes some hundred samples a second. An exact sample takes 5 ms per mapped GB, so it is
    repeated every `exact_s` at most, and when a process starts or ends; samples between them add
    the growth of anonymous memory since then. `error`: the error that stopped it, if any.
    """

    def __init__(self, pid: int, exact_s: float = EXACT_S) -> None:
        self.pid = pid
        self._exact_s = exact_s
        self.peak = Usage()
        self.looks = 0
        self.error: UsageError | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def sample(self) -> Usage:
        """Take an exact sample now."""
        usage = tree_usage(tree_of(self.pid))
        self._note(usage)
        return usage

    def _note(self, usage: Usage) -> None:
        with self._lock:
            self.peak = max(self.peak, usage, key=lambda one: one.committed)

    def _watch(self) -> None:
        try:
            while not self._stop.is_set():
                self._watch_tree(tree_of(self.pid))
        except UsageError as error:
            self.error = error

    def _watch_tree(self, pids: list[int]) -> None:
        """Sample processes until one starts or ends.

        The first sample waits a little: before its exec, a child process is a copy of its parent.
        """
        exact, cheap, next_exact, next_tree = Usage(), 0, 0.0, time.monotonic() + TREE_S
        while not self._stop.wait(INTERVAL_S):
            self.looks += 1
            now, before = time.monotonic(), _cheap_bytes(pids)
            if now >= next_exact:
                usage = tree_usage(pids)
                after = _cheap_bytes(pids)
                if not next_exact or abs(after - before) < STILL_BYTES:
                    exact, cheap = usage, after
                took_s = time.monotonic() - now
                next_exact, before = now + max(self._exact_s, 3 * took_s), after
            grown = max(before - cheap, 0)
            self._note(replace(exact, anonymous=exact.anonymous + grown))
            if now >= next_tree:
                next_tree = now + TREE_S
                if tree_of(self.pid) != pids:
                    return
