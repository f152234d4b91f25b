from __future__ import annotations

from dataclasses import replace

import pytest

from tokmill.api.doctor.advice import problems_of
from tokmill.api.doctor.findings import Disk, EngineFound, Findings, Gpu, Machine, Package

GIB = 1 << 30
DISK = Disk("here", "/data", "ext4", 100 * GIB, "", True, True, 0.001)
GOOD = Findings(
    tokmill="1",
    python="3.11",
    platform="Linux",
    packages=(Package("numpy", "2.0"),),
    engines=(EngineFound("tokenizers", "1"), EngineFound("gigatoken", "1")),
    machine=Machine(8, 8, 64 * GIB, 0, 64 * GIB, 60 * GIB, 32 * GIB, 65536),
    disks=(DISK,),
    gpus=(),
    optional=(Package("torch", "2.9+cpu"),),
    extensions=(),
    problems=(),
)
MACHINE = GOOD.machine
assert MACHINE is not None


def advice(findings: Findings) -> list[tuple[str, bool]]:
    return [(problem.text, problem.essential) for problem in problems_of(findings)]


def test_a_good_machine_has_no_problem() -> None:
    assert advice(GOOD) == []


@pytest.mark.parametrize(
    ("machine", "text"),
    [
        (replace(MACHINE, usable_bytes=GIB // 2), "512.0 MiB of memory: a run takes"),
        (replace(MACHINE, shm_bytes=GIB // 16), "shared memory (/dev/shm): 64.0 MiB"),
        (replace(MACHINE, open_files=256), "256 open files at most"),
    ],
)
def test_small_limits_are_named_with_a_remedy(machine: Machine, text: str) -> None:
    ((found, essential),) = advice(replace(GOOD, machine=machine))
    assert found.startswith(text)
    assert not essential


@pytest.mark.parametrize(
    ("disk", "text"),
    [
        (replace(DISK, problem="read-only file system"), "/data: cannot be written: read-only"),
        (replace(DISK, free_bytes=10**6), "/data: 1 MB free"),
        (replace(DISK, hard_links=False), "/data: ext4 has no hard links, which commits need"),
        (replace(DISK, sync_s=2.0), "/data: 2.0 s to make 4 kB durable"),
    ],
)
def test_disks_that_cannot_hold_a_dataset_are_named(disk: Disk, text: str) -> None:
    ((found, essential),) = advice(replace(GOOD, disks=(disk,)))
    assert found.startswith(text)
    assert not essential


def test_without_hard_links_temporary_files_are_no_problem() -> None:
    disk = replace(DISK, use="temporary", hard_links=False)
    assert advice(replace(GOOD, disks=(disk,))) == []


def test_torch_without_cuda_is_named_where_there_is_a_gpu() -> None:
    ((found, _),) = advice(replace(GOOD, gpus=(Gpu("NVIDIA L4", 0, ""),)))
    assert found.startswith("torch 2.9+cpu cannot use the GPU")


def test_without_a_fast_engine_the_packages_are_named() -> None:
    engines = (EngineFound("tokenizers", "1"),)
    ((found, _),) = advice(replace(GOOD, engines=engines))
    assert found.startswith("no fast engine works here")


def test_a_needed_package_that_is_missing_is_essential() -> None:
    packages = (Package("numpy", "", "ModuleNotFoundError: no"),)
    expected = [("numpy is not installed: pip install tokmill", True)]
    assert advice(replace(GOOD, packages=packages)) == expected
