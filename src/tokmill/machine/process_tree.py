"""Measurement of the committed memory of a tree of processes, and of its page cache.

Committed is the sum of Pss_Anon and Pss_Shmem in /proc/PID/smaps_rollup: what the system must
provide. RSS and USS mislead where files are mapped or pages are shared.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Self

from tokmill.errors import UsageError

PROC = Path("/proc")
SHM = Path("/dev/shm")  # noqa: S108 where shared memory lives, not a temporary file


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


def tree_of(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    if (PROC / "self" / "stat").exists():
        of = _listed_children if _has_lists() else _searched_children().get
        tree = [pid]
        for member in tree:  # it grows on the way
            tree += of(member) or ()
        return tree
    import psutil  # takes 10 ms

    try:
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.Error:
        return [pid]


@cache
def _has_lists() -> bool:
    """Return whether the kernel lists the children of each thread; most do."""
    return (PROC / "self" / "task" / str(threading.get_native_id()) / "children").exists()


def _listed_children(pid: int) -> list[int]:
    """Return the children of a process, which cost as much as it has threads."""
    children: list[int] = []
    with suppress(OSError):  # it has ended
        for thread in os.scandir(f"{PROC}/{pid}/task"):
            with suppress(OSError):
                children += map(int, _read(f"{thread.path}/children").split())
    return children


def _searched_children() -> dict[int, list[int]]:
    """Return the children of every process of the machine."""
    children: dict[int, list[int]] = {}
    for folder in PROC.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            state = _read(f"{folder}/stat")
        except OSError:  # it has ended
            continue
        # Its name, in brackets, may hold anything.
        fields = state.rpartition(b")")[2].split()
        if len(fields) > 1:
            children.setdefault(int(fields[1]), []).append(int(folder.name))
    return children


def _read(path: str) -> bytes:
    """Return the content of a file of /proc, in a fifth of the time that pathlib takes."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 1 << 16)
    finally:
        os.close(descriptor)


def tree_usage(pids: list[int]) -> Usage:
    """Return the memory of processes together; a process that has ended counts as 0.

    Shared memory counts even if no process maps it: a batch on its way from a worker to the trainer
    is only an open file in /dev/shm. RSS is used if the system has no proportional shares by kind
    (macOS, gVisor, Linux before 5.4) or does not allow reading them.
    """
    if not _has_shares():
        return _resident(pids)
    anonymous = mapped = file = 0
    opened: dict[int, int] = {}
    device = SHM.stat().st_dev if SHM.exists() else -1
    try:
        for pid in pids:
            shares = _shares(pid)
            anonymous += shares.get("Pss_Anon", 0)
            mapped += shares.get("Pss_Shmem", 0)
            file += shares.get("Pss_File", 0)
            opened |= _shared_files(pid, device)
    except PermissionError:
        return _resident(pids)
    return Usage(anonymous, max(mapped, sum(opened.values())), file)


@cache
def _has_shares() -> bool:
    try:
        return "Pss_Anon:" in (PROC / "self" / "smaps_rollup").read_text(encoding="utf-8")
    except OSError:
        return False


def _shares(pid: int) -> dict[str, int]:
    """Return the shares of a process by kind, in bytes; nothing if it has ended or is a zombie."""
    try:
        lines = _read(f"{PROC}/{pid}/smaps_rollup").decode().splitlines()
    except PermissionError:
        raise
    except OSError:
        return {}
    rows = (line.split() for line in lines[1:])
    return {name.rstrip(":"): int(size) << 10 for name, size, *_ in rows}


def _shared_files(pid: int, device: int) -> dict[int, int]:
    """Return the bytes of the open files of a process in /dev/shm, by inode."""
    sizes = {}
    with suppress(OSError):  # it has ended, or its files may not be listed
        for descriptor in (PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                state = descriptor.stat()
                if state.st_dev == device:
                    sizes[state.st_ino] = state.st_blocks * 512
    return sizes


def _resident(pids: list[int]) -> Usage:
    """Return the resident memory of processes; shared pages count once for each."""
    import psutil

    total = 0
    for pid in pids:
        try:
            total += psutil.Process(pid).memory_info().rss
        except psutil.Error:
            continue
    return Usage(anonymous=total, exact=False)


def _cheap_bytes(pids: list[int]) -> int:
    """Return anonymous memory from cheap counters; pages shared by a fork count in each process."""
    total = 0
    for pid in pids:
        try:
            _, resident, mapped, *_ = _read(f"{PROC}/{pid}/statm").split()
        except OSError:
            continue
        total += int(resident) - int(mapped)
    return total * os.sysconf("SC_PAGE_SIZE")


IN_BACKGROUND = 0.008
"""Share of the processor time of a run of tokmill that sampling it takes at most."""
BESIDE_TRAINING = 0.05
"""The same beside a training, which mostly works on GPUs."""
MEASURING = 1.0
"""The same if there is no other work: some hundred samples per second."""

LOOK_S, EXACT_S, TREE_S = 0.002, 0.1, 0.05
"""Minimum seconds between two cheap samples, two exact samples, two searches for processes."""
STILL_BYTES = 1 << 20
"""If memory changes more than this during an exact sample, the sample is discarded."""


class Sampler:
    """Samples the memory of a tree of processes on a thread, and keeps the largest `Usage`.

    An exact sample takes 5 ms per mapped GB. Samples between two exact ones add the growth of a
    cheap counter to the last exact one. The thread takes `cpu_share` in all: of the processor time
    of this process, or, with others, of the seconds in which they may work. `looks` counts the
    samples.
    """

    def __init__(self, pid: int | None = None, cpu_share: float = IN_BACKGROUND) -> None:
        self._pid = os.getpid() if pid is None else pid
        self._share = cpu_share / 3
        self.peak = Usage()
        self.looks = 0
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
        usage = tree_usage(tree_of(self._pid))
        self._note(usage)
        return usage

    def _note(self, usage: Usage) -> None:
        with self._lock:
            if usage.committed > self.peak.committed:
                self.peak = usage

    def _watch(self) -> None:
        """Keep the peak until stopped: exact amounts now and then, resident memory between them.

        Resident memory is cheap to read; its growth since the last exact amounts is added to them.
        Of this process alone, without children, it is all: nothing is shared.
        """
        seen = pids = tree_of(self._pid)
        exact, counted = Usage(), 0
        exacts, trees = _Repeated(EXACT_S), _Repeated(TREE_S)
        pause_s, began_s = LOOK_S, time.monotonic()
        while not self._stop.wait(pause_s):
            self.looks += 1
            is_alone = seen == [os.getpid()]
            worked_s = time.process_time() if is_alone else time.monotonic() - began_s
            allowed_s = worked_s * self._share
            count = _cheap_bytes(pids)
            if not is_alone and exacts.is_due(allowed_s / 3):
                before, usage, count = count, tree_usage(pids), _cheap_bytes(pids)
                if not exacts.spent_s or abs(count - before) < STILL_BYTES:
                    exact, counted = usage, max(before, count)
                exacts.end()
            self._note(replace(exact, anonymous=exact.anonymous + max(count - counted, 0)))
            if trees.is_due(allowed_s / 3):
                tree = tree_of(self._pid)
                # Until its exec, a process of vfork has all the memory of its parent once more.
                known = [pid for pid in tree if pid in seen]
                seen = tree
                if known != pids:
                    pids, exacts, counted = known, _Repeated(EXACT_S), 0
                    exact = Usage()
                trees.end()
            pause_s = max(LOOK_S, time.thread_time() / self._share - worked_s)


class _Repeated:
    """Work of a thread that is repeated at most every `least_s`; `spent_s`: of processor time."""

    def __init__(self, least_s: float) -> None:
        self.spent_s = 0.0
        self._least_s, self._next_s = least_s, 0.0
        self._start_s = 0.0

    def is_due(self, allowed_s: float) -> bool:
        """Return whether it may be done again; then it begins. `allowed_s`: of processor time."""
        self._start_s = time.thread_time()
        return self.spent_s <= allowed_s and time.monotonic() >= self._next_s

    def end(self) -> None:
        """End it."""
        self.spent_s += time.thread_time() - self._start_s
        self._next_s = time.monotonic() + self._least_s


@dataclass(frozen=True, slots=True)
class Measured:
    """The memory of a process and its children at their peak, while they were watched."""

    pid: int
    seconds: float
    peak: Usage

    def as_json(self) -> dict[str, Any]:
        """Return plain values; the page cache is None if only RSS is known."""
        return {
            "pid": self.pid,
            "seconds": round(self.seconds, 1),
            "committed_bytes": self.peak.committed,
            "shared_bytes": self.peak.shared,
            "page_cache_bytes": self.peak.file if self.peak.exact else None,
        }


def measured(pid: int, note: Callable[[str], None]) -> Measured:
    """Return the peak of a running process with its children, until it ends or Ctrl-C is pressed.

    `note`: gets a line after the first sample.

    Raises:
        UsageError: there is no such process.
    """
    if not _is_running(pid):
        raise UsageError(f"--measure: expected the id of a running process, found {pid}")
    start = time.monotonic()
    with Sampler(pid, BESIDE_TRAINING) as sampler, suppress(KeyboardInterrupt):
        sampler.sample()
        note(f"measuring process {pid} and its children until it ends; Ctrl-C ends it earlier")
        while _is_running(pid):
            time.sleep(TREE_S)
    return Measured(pid, time.monotonic() - start, sampler.peak)


def _is_running(pid: int) -> bool:
    import psutil

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except (psutil.Error, ValueError):  # also a negative id
        return False
