"""Faults at steps of a run: a sample of them here, all of them with EVERY_FAULT=1."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
N_ROUNDS = 6


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench.soak", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=7200,
        check=False,
    )


def test_a_fault_at_any_step_loses_nothing():
    few = ("--sample", str(N_ROUNDS), "--only", "pretrain, 5 parts")
    how_many = () if os.environ.get("EVERY_FAULT") else few
    done = run("--every-step", *how_many)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["problems"] == []
    assert found["rounds"] >= N_ROUNDS
    assert sum(found["faults"].values()) > N_ROUNDS // 4
    assert done.returncode == 0


# The harness sees what it is there to see
