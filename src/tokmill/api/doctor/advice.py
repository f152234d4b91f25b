"""Problems among findings, each with what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.api.doctor.findings import Problem
from tokmill.words.units import memory, seconds, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokmill.api.doctor.findings import Disk, Findings, Machine

REFERENCE = "tokenizers"
LEAST_MEMORY_BYTES = 1 << 30
"""A run takes 300 to 800 MiB, see docs/speed.md."""

LEAST_SHM_BYTES = 256 << 20
"""Docker gives 64 MiB, which a few batches of DataLoader workers fill."""

LEAST_OPEN_FILES = 1024
LEAST_FREE_BYTES = 1 << 30
SLOW_SYNC_S = 0.5


def problems_of(findings: Findings) -> Iterator[Problem]:
    """Yield the problems, what is essential first."""
    for package in findings.packages:
        if package.broken and not package.version:
            yield Problem(f"{package.name} is not installed: pip install tokmill", essential=True)
        elif package.broken:
            yield Problem(
                f"{package.name} {package.version} cannot be imported: {package.broken}: "
                f"pip install --force-reinstall {package.name}",
                essential=True,
            )
    yield from _of_engines(findings)
    if findings.machine is not None:
        yield from _of_machine(findings.machine, findings)
    for disk in findings.disks:
        yield from _of_disk(disk)


def _of_engines(findings: Findings) -> Iterator[Problem]:
    for engine in findings.engines:
        if engine.broken:
            yield Problem(
                f"engine {engine.name}: {engine.broken}: it is not used; to repair it, "
                f"pip install --force-reinstall {engine.name.partition('+')[0]}"
            )
    fast = [engine for engine in findings.engines if "+" not in engine.name]
    if findings.engines and all(one.broken or one.name == REFERENCE for one in fast):
        yield Problem(
            "no fast engine works here: encoding is about ten times slower: "
            "pip install gigatoken awkward fastokens"
        )


def _of_machine(machine: Machine, findings: Findings) -> Iterator[Problem]:
    if 0 < machine.usable_bytes < LEAST_MEMORY_BYTES:
        yield Problem(
            f"{memory(machine.usable_bytes)} of memory: a run takes 300 to 800 MiB: "
            "use --workers 1 --threads 1 --engine tokenizers"
        )
    torch = "".join(package.version for package in findings.optional if package.name == "torch")
    if torch and 0 < machine.shm_bytes < LEAST_SHM_BYTES:
        yield Problem(
            f"shared memory (/dev/shm): {memory(machine.shm_bytes)}: DataLoader workers of torch "
            "may fill it: start the container with --shm-size 8g"
        )
    if 0 <= machine.open_files < LEAST_OPEN_FILES:
        yield Problem(
            f"{machine.open_files} open files at most: large datasets need more: "
            f"ulimit -n {LEAST_OPEN_FILES}"
        )
    if findings.gpus and torch.endswith("+cpu"):
        yield Problem(
            f"torch {torch} cannot use the GPU: install a build for CUDA, see pytorch.org"
        )


def _of_disk(disk: Disk) -> Iterator[Problem]:
    if disk.problem:
        advice = "set TMPDIR" if disk.use == "temporary" else "name an --output elsewhere"
        yield Problem(f"{disk.path}: cannot be written: {disk.problem}: {advice}")
        return
    if disk.free_bytes < LEAST_FREE_BYTES:
        yield Problem(f"{disk.path}: {size(disk.free_bytes)} free: make room")
    if disk.use == "here" and not disk.hard_links:
        yield Problem(
            f"{disk.path}: {disk.file_system or 'its file system'} has no hard links, which "
            "commits need: name an --output on another file system"
        )
    if disk.sync_s > SLOW_SYNC_S:
        yield Problem(
            f"{disk.path}: {seconds(disk.sync_s)} to make 4 kB durable: each commit waits for "
            "that: name an --output on another disk"
        )
