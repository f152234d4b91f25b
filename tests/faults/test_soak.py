"""Faults at steps of a run: a sample of them here, all of them with TOKMILL_EVERY_FAULT=1."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench import faults, soak
from bench.faults import BROKEN, FULL, INTERRUPT, KILL, Ended

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
    how_many = () if os.environ.get("TOKMILL_EVERY_FAULT") else few
    done = run("--every-step", *how_many)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["problems"] == []
    assert found["rounds"] >= N_ROUNDS
    assert sum(found["faults"].values()) > N_ROUNDS // 4
    assert done.returncode == 0


# The harness sees what it is there to see


@pytest.mark.parametrize(
    ("ended", "kind", "is_right"),
    [
        (Ended(-9, ""), KILL, True),
        (Ended(0, ""), KILL, True),
        (Ended(130, "error: interrupted\n"), INTERRUPT, True),
        (Ended(5, "error: out: no space left on device\n"), FULL, True),
        (Ended(130, ""), INTERRUPT, False),
        (Ended(5, "out: no space\n"), FULL, False),
        (Ended(70, "Traceback (most recent call last):\n"), BROKEN, False),
        (Ended(3, "error: 3 records\n"), BROKEN, False),
        (Ended(-11, ""), INTERRUPT, False),
    ],
)
def test_a_wrong_end_is_a_problem(ended, kind, is_right):
    assert (not soak._wrong_end(ended, kind)) == is_right


def test_half_a_file_under_its_final_name_is_a_problem(tmp_path):
    (tmp_path / "parts").mkdir()
    for name in ("train-0000000-0000.bin", "train-0000000-0000.idx", "parts/0000000.json"):
        (tmp_path / name).write_bytes(b"whole")
    expected = faults.sums(tmp_path)
    (tmp_path / "parts" / ".0000001.json.1-0123abcd.tmp").write_bytes(b"hidden")
    assert faults.half_written(tmp_path, expected) == []
    (tmp_path / "train-0000000-0000.idx").write_bytes(b"who")
    (tmp_path / "train-0000001-0000.bin").write_bytes(b"")
    assert faults.half_written(tmp_path, expected) == [
        "train-0000000-0000.idx",
        "train-0000001-0000.bin",
    ]
    assert faults.hidden(tmp_path) == ["parts/.0000001.json.1-0123abcd.tmp"]
