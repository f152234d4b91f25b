"""Faults at steps of a run: a sample of them here, all of them with TOKMILL_EVERY_FAULT=1."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench import faults, soak
from bench.faults import BROKEN, FULL, INTERRUPT, KILL, Ended, Fault

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


def test_steps_are_counted_and_the_fault_comes_at_its_step(tmp_path):
    program = """
import os, sys
from pathlib import Path
from bench import faults
from bench.faults import Fault, KINDS
from tokmill.storage import write_file

def write(command):
    write_file(Path(command[0]) / "manifest.json", b"x" * 10)
    return 0

faults._main = write
out = Path(sys.argv[1])
out.mkdir()
whole = faults.run([[str(out)]], out)
assert whole.status == 0, whole
names = [name.split(".tmp")[0] for name in whole.steps]
for step in range(1, len(names) + 1):
    (out / "manifest.json").unlink(missing_ok=True)
    ended = faults.run([[str(out)]], out, Fault("SIGKILL", step))
    there = (out / "manifest.json").exists()
    print(ended.status, there, whole.steps[step - 1].split(" ")[0])
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "out")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    assert {status for status, *_ in lines} == {"-9"}
    steps = [(name, there == "True") for _, there, name in lines]
    assert [name for name, _ in steps][:5] == ["open", "opened", "write", "half", "written"]
    assert not any(there for name, there in steps[: [n for n, _ in steps].index("replace") + 1])
    assert all(there for name, there in steps[[n for n, _ in steps].index("replace") + 1 :])


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


def test_every_kind_of_fault_comes_at_every_step(tmp_path):
    fake = soak.Soak.__new__(soak.Soak)
    fake.names = list(soak.CONFIGURATIONS)
    fake.n_steps = dict.fromkeys(soak.CONFIGURATIONS, 3)
    found = list(soak.every_step(fake, 0, 1))
    assert len(set(found)) == len(soak.CONFIGURATIONS) * len(faults.KINDS) * 3
    sample = list(soak.every_step(fake, 7, 1))
    assert len(sample) == 7
    assert sample == list(soak.every_step(fake, 7, 1))
    assert (next(iter(soak.CONFIGURATIONS)), Fault(KILL, 1)) in found
