from __future__ import annotations

import resource
from pathlib import Path

import pytest

from tokmill.api.doctor import machine
from tokmill.api.doctor.findings import Gpu
from tokmill.api.doctor.machine import examine_gpus, examine_machine
from tokmill.bill.measuring.machine import memory_limit, usable_cores

MIB = 1 << 20


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let this process be in a cgroup below a directory."""
    (tmp_path / "membership").write_text("0::/\n")
    root = tmp_path / "cgroup"
    root.mkdir()
    for function in (memory_limit, usable_cores):
        monkeypatch.setattr(function, "__defaults__", (tmp_path / "membership", root))
    return root


def test_the_limits_of_the_cgroup_count(cgroup: Path) -> None:
    (cgroup / "memory.max").write_text(f"{512 * MIB}\n")
    (cgroup / "cpu.max").write_text("50000 100000\n")
    found = examine_machine()
    assert (found.limit_bytes, found.usable_bytes) == (512 * MIB, 512 * MIB)
    assert found.memory_bytes > found.usable_bytes
    assert found.cores == 1


def test_without_a_limit_the_memory_of_the_machine_counts(cgroup: Path) -> None:
    found = examine_machine()
    assert (found.limit_bytes, found.usable_bytes) == (0, found.memory_bytes)
    assert 1 <= found.cores <= found.machine_cores


def test_open_files_are_those_of_the_soft_limit() -> None:
    assert examine_machine().open_files == resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_gpus_are_those_of_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvidia_smi(tmp_path, monkeypatch, "echo 'NVIDIA H100, 81559, 550.54'; echo 'X, [N/A], 1'")
    assert examine_gpus() == (Gpu("NVIDIA H100", 81559 * MIB, "550.54"), Gpu("X", 0, "1"))


@pytest.mark.parametrize("script", ["echo failed; exit 9", "exec sleep 60"])
def test_a_driver_that_fails_or_hangs_is_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    nvidia_smi(tmp_path, monkeypatch, script)
    monkeypatch.setattr(machine, "NVIDIA_SMI_TIMEOUT_S", 0.2)
    monkeypatch.setattr(machine, "gpu_names", lambda: iter(["NVIDIA L4"]))
    assert examine_gpus() == (Gpu("NVIDIA L4", 0, ""),)
