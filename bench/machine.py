"""What a figure must name: machine, date, versions, load."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

PACKAGES = (
    "tokmill", "gigatoken", "fastokens", "tokenizers", "sentencepiece", "datatrove", "orjson",
    "pyarrow", "numpy", "awkward",
)  # fmt: skip


def cores() -> int:
    """Return the number of processors that this process and its children may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def keep_to(n_cores: int) -> None:
    """Keep this process and its children on the first `n_cores` of its processors."""
    if not hasattr(os, "sched_setaffinity"):
        raise SystemExit("--cores needs Linux")
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:n_cores])


def load_average() -> list[float]:
    """Return the load over 1, 5 and 15 minutes."""
    return [round(load, 2) for load in os.getloadavg()]


@dataclass(frozen=True, slots=True)
class CpuClock:
    """CPU seconds so far: of the whole machine, steal included, and of our ended children."""

    machine_s: float
    children_s: float

    @classmethod
    def now(cls) -> CpuClock:
        """Read the clocks."""
        times = psutil.cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0)
        guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
        ours = os.times()
        return cls(sum(times) - idle - guests, ours.children_user + ours.children_system)

    def others_since(self, start: CpuClock) -> float:
        """Return the CPU seconds that others took since `start`; what is ours must have ended."""
        ours = self.children_s - start.children_s
        return max(0.0, self.machine_s - start.machine_s - ours)


def described() -> dict[str, Any]:
    """Return processor, cores, memory, system, date and the versions of everything timed."""
    return {
        "cpu": _cpu(),
        "cores": cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "versions": {name: _version(name) for name in PACKAGES},
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
