"""A machine as the bill of host RAM sees it: what it has, and what a bare process takes there."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20

BARE_BYTES = 15 * MIB
"""Anonymous memory of Python with NumPy (Linux, x86-64, Python 3.11, NumPy 2.4, 2026-11)."""
TORCH_BYTES = 277 * MIB
"""The same with torch 2.13 built for CUDA 13, which trainers on GPUs run on, before any context."""

FORKED_BYTES = 12 * MIB
"""Anonymous memory that a forked worker of a DataLoader makes its own (the same machine)."""
BARE_FORKED_BYTES = 7 * MIB // 2
"""The same of a worker of NumPy and multiprocessing alone."""
TRACKER_BYTES = 6 * MIB
"""Anonymous memory of the process that watches the semaphores of spawned workers."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Memory of a machine, in bytes; 0: not known, nothing is then held against it.

    `limit_bytes` is the smallest limit of the process's cgroup and all above it; `shm_bytes` the
    size of /dev/shm. `interpreter_bytes` is the anonymous memory of a process that has imported
    what a trainer imports and done nothing, `forked_bytes` what a worker forked from it makes its
    own.
    """

    memory_bytes: int = 0
    available_bytes: int = 0
    limit_bytes: int = 0
    shm_bytes: int = 0
    interpreter_bytes: int = TORCH_BYTES
    forked_bytes: int = FORKED_BYTES

    @property
    def usable_bytes(self) -> int:
        """Return the memory that a run may use: the smaller of memory and limit."""
        known = [n for n in (self.memory_bytes, self.limit_bytes) if n > 0]
        return min(known, default=0)
