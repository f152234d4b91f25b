"""What this machine has: memory, the limits of its cgroups, /dev/shm."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

from tokmill.measure.usage import SHM
from tokmill.memory.machine import (
    BARE_BYTES,
    BARE_FORKED_BYTES,
    FORKED_BYTES,
    TORCH_BYTES,
    Machine,
)

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
_UNLIMITED = 1 << 62
"""Version 1 writes the largest number of pages for "no limit"."""

_LIMITS = ("memory.max", "memory.limit_in_bytes")
_USED = {
    "peak": ("memory.peak", "memory.max_usage_in_bytes"),
    "current": ("memory.current", "memory.usage_in_bytes"),
}
_STATES = {
    "anon": ("anon", "total_rss"),
    "file": ("file", "total_cache"),
    "shmem": ("shmem", "total_shmem"),
}


def this_machine(*, torch: bool = True) -> Machine:
    """Say what this machine has; `torch`: whether a trainer's process imports it."""
    memory = psutil.virtual_memory()
    return Machine(
        memory_bytes=memory.total,
        available_bytes=memory.available,
        limit_bytes=memory_limit(),
        shm_bytes=_size_of(SHM),
        interpreter_bytes=TORCH_BYTES if torch else BARE_BYTES,
        forked_bytes=FORKED_BYTES if torch else BARE_FORKED_BYTES,
    )


def memory_limit(membership: Path = MEMBERSHIP, root: Path = CGROUPS) -> int:
    """Give the smallest memory limit of this process's cgroup and all above it; 0 for none.

    Version 2 keeps it in `memory.max`, version 1 in `memory.limit_in_bytes`.
    """
    limits = [
        limit
        for directory in memory_cgroups(membership, root)
        for name in _LIMITS
        if 0 < (limit := _number(directory / name)) < _UNLIMITED
    ]
    return min(limits, default=0)


def cgroup_memory(membership: Path = MEMBERSHIP, root: Path = CGROUPS) -> dict[str, int]:
    """Give what this process's cgroup counts, in bytes: peak, current, anon, file, shmem.

    Everything that runs in the cgroup is in it, and `current` holds page cache. What cannot be read
    is left out.
    """
    directory = next(iter(memory_cgroups(membership, root)), None)
    if directory is None:
        return {}
    found = {
        key: number
        for key, names in _USED.items()
        for name in names
        if (number := _number(directory / name)) > 0
    }
    state = dict(line.split(" ", 1) for line in _text(directory / "memory.stat").splitlines())
    for key, names in _STATES.items():
        for name in names:
            if name in state:
                found[key] = int(state[name])
    return found


def memory_cgroups(membership: Path, root: Path) -> list[Path]:
    """Give the directories of this process's memory cgroup and of all above it, nearest first.

    A container that has a namespace of its own sees itself at the root, whatever path it is told;
    directories that are not there are passed over.
    """
    found = []
    for line in _text(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top = root / "memory" if controllers else root
        inner = top / path.lstrip("/")
        found += [one for one in (inner, *inner.parents) if one == top or top in one.parents]
    return [one for one in found if any((one / name).exists() for name in _LIMITS)]


def _size_of(directory: Path) -> int:
    try:
        state = os.statvfs(directory)
    except OSError:
        return 0
    return state.f_blocks * state.f_frsize


def _number(path: Path) -> int:
    text = _text(path).strip()
    return int(text) if text.isdigit() else 0


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
