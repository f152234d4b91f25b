"""Reads what a tree of processes has committed: anonymous and shared memory, file pages apart.

RSS and USS mislead where files are mapped or pages shared, so the figures are proportional shares
(PSS) from /proc/PID/smaps_rollup, added up over the tree.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil

from tokmill.errors import UsageError

if TYPE_CHECKING:
    from types import TracebackType

PROC = Path("/proc")
SHM = Path("/dev/shm")  # noqa: S108 where shared memory lives, not a temporary file
INTERVAL_S = 0.002
"""Between two looks; a look takes 0.1 ms a process."""

EXACT_S = 0.1
"""Between two exact looks: pages that are copied on writing change no cheap counter."""
STILL_BYTES = 1 << 20
"""While memory grows faster than this during an exact look, the look before counts on."""
TREE_S = 0.05
"""How often the processes of the tree are looked for."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Memory of a tree of processes, in bytes.

    `anonymous` and `shared` cannot be given back; `file` is page cache that it maps. Where only RSS
    is known (`exact` is false), all of it stands in `anonymous`, shared pages counted once for
    every process.
    """

    anonymous: int = 0
    shared: int = 0
    file: int = 0
    exact: bool = True

    @property
    def committed(self) -> int:
        """Memory that the run needs to have: anonymous and shared."""
        return self.anonymous + self.shared


def tree_usage(pids: list[int], proc: Path = PROC) -> Usage:
    """Add up the memory of processes; one that has ended adds nothing.

    Shared memory counts even while nobody maps it: a batch on its way from a worker to the trainer
    is an open file in /dev/shm and no more. Where the system does not tell proportional shares by
    kind (macOS, gVisor, Linux before 5.4), only RSS is read.

    Raises:
        UsageError: the system does not let us read it.
    """
    if not _tells_shares(proc):
        return Usage(anonymous=sum(map(_rss_bytes, pids)), exact=False)
    anonymous = mapped = file = 0
    opened: dict[int, int] = {}
    device = SHM.stat().st_dev if SHM.exists() else -1
    for pid in pids:
        found = _rollup(pid, proc)
        anonymous += found.get("Pss_Anon", 0)
        mapped += found.get("Pss_Shmem", 0)
        file += found.get("Pss_File", 0)
        opened |= _shared_files(pid, device)
    return Usage(anonymous, max(mapped, sum(opened.values())), file)


def _rss_bytes(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


@cache
def _tells_shares(proc: Path) -> bool:
    try:
        return "Pss_Anon:" in (proc / "self" / "smaps_rollup").read_text(encoding="utf-8")
    except PermissionError:  # it would tell, if it might: reading it says so
        return True
    except OSError:
        return False


def _rollup(pid: int, proc: Path) -> dict[str, int]:
    """Give the shares of a process by kind, in bytes; nothing of one that has ended."""
    path = proc / str(pid) / "smaps_rollup"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except PermissionError:
        raise UsageError(
            f"{path}: no permission to read memory details "
            "(expected in a container without ptrace): measure outside of it, or leave out "
            "--measure"
        ) from None
    except OSError:  # it has just ended, or is a zombie
        return {}
    rows = (line.split() for line in lines[1:])
    return {row[0].rstrip(":"): int(row[1]) << 10 for row in rows}


def _shared_files(pid: int, device: int) -> dict[int, int]:
    """Give the bytes of the open files of a process in /dev/shm, by inode."""
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


def tree_of(pid: int) -> list[int]:
    """Give a process and all below it."""
    try:
        root = psutil.Process(pid)
        return [pid, *(child.pid for child in root.children(recursive=True))]
    except psutil.Error:
        return [pid]


def _cheap_bytes(pids: list[int]) -> int:
    """Add up anonymous memory as counters that cost nothing to read; shared by a fork: in each."""
    total = 0
    for pid in pids:
        try:
            _, resident, mapped, *_ = (PROC / str(pid) / "statm").read_text("utf-8").split()
        except OSError:
            continue
        total += int(resident) - int(mapped)
    return total * os.sysconf("SC_PAGE_SIZE")


class Watch:
    """A thread that keeps the largest `Usage.committed` of a tree while the context is open.

    It looks some hundred times a second. An exact look takes 5 ms a mapped GB, so there is one
    every `exact_s` at most, and whenever a process came or went; between two counts by how much
    anonymous memory has grown since. `error` is what stopped it, if anything did.
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def sample(self) -> Usage:
        """Look exactly, now."""
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
        """Look at processes until one comes or goes.

        The first look waits for what has just been started: before its exec, a child is its parent.
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
