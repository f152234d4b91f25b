"""The resources of this machine: memory, processors, limits of its cgroups, /dev/shm."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

from tokmill.machine.process_tree import SHM

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
MEMINFO = Path("/proc/meminfo")
NVIDIA = Path("/proc/driver/nvidia")
_UNLIMITED = 1 << 62
"""Version 1 writes the largest number of pages for "no limit"."""

_LIMITS = ("memory.max", "memory.limit_in_bytes")


def gpu_names(driver: Path = NVIDIA) -> Iterator[str]:
    """Yield the names of NVIDIA GPUs in this machine, from the driver's files."""
    for path in sorted(driver.glob("gpus/*/information")):
        for line in _text(path).splitlines():
            key, _, value = line.partition(":")
            if key == "Model":
                yield value.strip()


def usable_memory() -> int:
    """Return the bytes that this process may use: the machine's memory or its cgroup's limit."""
    known = (total_memory(), memory_limit())
    return min((n for n in known if n > 0), default=0)


def total_memory(meminfo: Path = MEMINFO) -> int:
    """Return the bytes of memory of this machine."""
    return _memory("MemTotal", "total", meminfo)


def available_memory(meminfo: Path = MEMINFO) -> int:
    """Return the bytes of memory of this machine that no program needs now."""
    return _memory("MemAvailable", "available", meminfo)


def _memory(name: str, attribute: str, meminfo: Path = MEMINFO) -> int:
    """Return an entry of /proc/meminfo in bytes; without it, what psutil has as this attribute."""
    for line in _text(meminfo).splitlines():
        found, _, value = line.partition(":")
        if found == name:
            return int(value.split()[0]) << 10
    import psutil  # takes 10 ms

    return int(getattr(psutil.virtual_memory(), attribute))


def usable_cores(membership: Path = MEMBERSHIP, root: Path = CGROUPS) -> int:
    """Return the number of processors that this process may use, at least 1.

    The minimum of its affinity and the CPU quotas of its cgroup and the parents, rounded up.
    """
    has_affinity = hasattr(os, "sched_getaffinity")
    n_cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    quotas = [_cpu_quota(directory) for directory in _cgroups("cpu", membership, root)]
    return max(1, min([n_cores, *(math.ceil(quota) for quota in quotas if quota > 0)]))


def _cpu_quota(directory: Path) -> float:
    """Return the CPU quota of a cgroup in processors; 0: no limit.

    Version 2 has `QUOTA PERIOD` in `cpu.max`, version 1 has one file for each.
    """
    texts = _text(directory / "cpu.max").split()
    if len(texts) != 2:
        texts = [_text(directory / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    quota, period = (int(text) if text.isdigit() else 0 for text in texts)
    return quota / period if period else 0


def memory_limit(membership: Path = MEMBERSHIP, root: Path = CGROUPS) -> int:
    """Return the smallest memory limit of this process's cgroup and its parents; 0: no limit.

    Version 2 has it in `memory.max`, version 1 in `memory.limit_in_bytes`.
    """
    limits = [
        limit
        for directory in _cgroups("memory", membership, root)
        for name in _LIMITS
        if 0 < (limit := _number(directory / name)) < _UNLIMITED
    ]
    return min(limits, default=0)


def _cgroups(controller: str, membership: Path, root: Path) -> list[Path]:
    """Return possible directories of this process's cgroup and its parents, nearest first.

    In a container with its own namespace the path in /proc may not exist, only the root does.
    Version 1 has a tree for each controller.
    """
    directories: list[Path] = []
    for line in _text(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        # Linked controllers share a tree under all their names; `cpu` may be missing as a link.
        for top in (root / controller, root / controllers) if controllers else (root,):
            inner = top / path.lstrip("/")
            directories += [path for path in (inner, *inner.parents) if path.is_relative_to(top)]
    return list(dict.fromkeys(directories))


def shared_memory() -> int:
    """Return the size of /dev/shm in bytes; 0 if there is none."""
    try:
        state = os.statvfs(SHM)
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
