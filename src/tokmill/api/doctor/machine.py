"""Cores, memory, open files and GPUs that a process of this machine may use."""

from __future__ import annotations

import os
import resource
import subprocess

from tokmill.api.doctor.findings import Gpu, Machine
from tokmill.bill.measuring.machine import gpu_names, this_machine, usable_cores

NVIDIA_SMI = (
    "nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits",
)  # fmt: skip
NVIDIA_SMI_TIMEOUT_S = 2.0
_MIB = 1 << 20


def examine_machine() -> Machine:
    """Return cores and memory of this machine, and the limits of the process's cgroup."""
    found = this_machine()
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Machine(
        cores=usable_cores(),
        machine_cores=os.cpu_count() or 0,
        memory_bytes=found.memory_bytes,
        limit_bytes=found.limit_bytes,
        usable_bytes=found.usable_bytes,
        available_bytes=found.available_bytes,
        shm_bytes=found.shm_bytes,
        open_files=-1 if soft == resource.RLIM_INFINITY else soft,
    )


def examine_gpus() -> tuple[Gpu, ...]:
    """Return NVIDIA's GPUs as nvidia-smi lists them, else their names in the driver's files."""
    try:
        done = subprocess.run(
            NVIDIA_SMI, capture_output=True, text=True, check=True, timeout=NVIDIA_SMI_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError):
        return tuple(Gpu(name, 0, "") for name in gpu_names())
    return tuple(_gpu(line) for line in done.stdout.splitlines() if line.count(",") == 2)


def _gpu(line: str) -> Gpu:
    name, memory, driver = (text.strip() for text in line.split(","))
    return Gpu(name, int(memory) * _MIB if memory.isdigit() else 0, driver)
