from __future__ import annotations

import os
from pathlib import Path

import pytest

from tokmill.machine.limits import gpu_names, memory_limit, usable_cores

GIB = 1 << 30


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cgroup"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def membership(root: Path, text: str) -> Path:
    path = root.parent / "membership"
    path.write_text(text)
    return path


def test_the_smallest_limit_of_all_ancestors_holds_in_version_2(root: Path):
    write(root / "a/b/memory.max", "max\n")
    write(root / "a/memory.max", f"{4 * GIB}\n")
    write(root / "memory.max", f"{8 * GIB}\n")
    assert memory_limit(membership(root, "0::/a/b\n"), root) == 4 * GIB


def test_the_smallest_limit_of_all_ancestors_holds_in_version_1(root: Path):
    write(root / "memory/a/b/memory.limit_in_bytes", f"{6 * GIB}\n")
    write(root / "memory/a/memory.limit_in_bytes", f"{2 * GIB}\n")
    write(root / "memory/memory.limit_in_bytes", "9223372036854771712\n")
    write(root / "a/b/memory.max", "1\n")  # another controller's tree
    text = "5:cpu,cpuacct:/a/b\n4:memory:/a/b\n"
    assert memory_limit(membership(root, text), root) == 2 * GIB


def test_a_container_that_is_told_another_path_sees_its_limit_at_the_root(root: Path):
    write(root / "memory.max", f"{3 * GIB}\n")
    assert memory_limit(membership(root, "0::/docker/1234\n"), root) == 3 * GIB


def test_gpus_are_named_as_the_driver_does(tmp_path: Path):
    for number in range(2):
        write(
            tmp_path / f"gpus/0000:0{number}:00.0/information",
            "Model: \t\t NVIDIA A100-SXM4-80GB\nIRQ:   \t\t 64\n",
        )
    assert list(gpu_names(tmp_path)) == ["NVIDIA A100-SXM4-80GB"] * 2
    assert list(gpu_names(tmp_path / "missing")) == []


@pytest.fixture
def eight_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)


@pytest.mark.usefixtures("eight_cores")
@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        ("max 100000", 8),
        ("200000 100000", 2),
        ("150000 100000", 2),
        ("1000 100000", 1),
        ("6400000 100000", 8),
        ("", 8),
    ],
)
def test_a_cpu_quota_of_version_2_is_that_many_cores_rounded_up(root: Path, quota, expected):
    write(root / "a/cpu.max", f"{quota}\n")
    assert usable_cores(membership(root, "0::/a\n"), root) == expected


@pytest.mark.usefixtures("eight_cores")
@pytest.mark.parametrize("tree", ["cpu", "cpu,cpuacct"])
@pytest.mark.parametrize(("quota", "expected"), [(-1, 8), (250_000, 3), (1_000, 1)])
def test_a_cpu_quota_of_version_1_is_that_many_cores_rounded_up(root: Path, tree, quota, expected):
    write(root / tree / "a/cpu.cfs_quota_us", f"{quota}\n")
    write(root / tree / "a/cpu.cfs_period_us", "100000\n")
    write(root / "memory/a/cpu.cfs_quota_us", "100000\n")  # another controller's tree
    text = "5:cpu,cpuacct:/a\n4:memory:/a\n"
    assert usable_cores(membership(root, text), root) == expected
