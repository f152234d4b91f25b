"""`--measure PID`: the host RAM of a running training, beside its bill."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

MIB = 1 << 20
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only RSS is known")

TRAINING = """
import subprocess, sys
held = bytearray(b"x") * (64 << 20)
if len(sys.argv) > 1:
    print("held", flush=True)
    sys.stdin.read()
else:
    worker = [sys.executable, "-c", WORKER, "worker"]
    subprocess.run(worker)
"""
PIPES: dict[str, Any] = {
    "stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True,
}  # fmt: skip


@contextmanager
def training() -> Iterator[subprocess.Popen[str]]:
    """Run a process and its child that have 64 MiB each, until standard input ends."""
    source = f"WORKER = {TRAINING!r}\n{TRAINING}"
    with subprocess.Popen([sys.executable, "-c", source], **PIPES) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.stdin.close()


def measuring(pid: int, *options: str) -> subprocess.Popen[str]:
    """Start the command; return it once it has taken its first sample."""
    command = [sys.executable, "-m", "tokmill", "memory", "--dataset-bytes", "1MB"]
    process = subprocess.Popen([*command, "--measure", str(pid), *options], **PIPES)
    assert process.stderr is not None
    assert process.stderr.readline() == (
        f"measuring process {pid} and its children until it ends; Ctrl-C ends it earlier\n"
    )
    return process


@LINUX
def test_a_training_is_measured_with_its_workers_until_it_ends():
    with training() as trainer, measuring(trainer.pid, "--json") as process:
        assert trainer.stdin is not None
        trainer.stdin.close()
        out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    found = json.loads(out)
    assert found["measured"]["pid"] == trainer.pid
    assert 130 * MIB < found["measured"]["committed_bytes"] < 190 * MIB
    assert found["measured"]["page_cache_bytes"] > 0


@LINUX
def test_ctrl_c_ends_the_measurement_and_shows_the_peak():
    with training() as trainer, measuring(trainer.pid, "--host-ram", "64GiB") as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    head, moment, peak, shared, cache = out.splitlines()[-5:]
    assert re.match(
        rf"host RAM, process {trainer.pid}, [\d.]+ s +predicted +measured +error$", head
    )
    assert re.fullmatch(r"  training +277\.\d MiB", moment)
    assert re.fullmatch(r"  peak +277\.\d MiB +1\d\d\.\d MiB +\+\d+\.\d%", peak)
    assert re.fullmatch(r"  of it shared \(/dev/shm\) +0\.0 MiB +\d.*", shared)
    assert re.fullmatch(r"  page cache, mapped files +\d.* MiB +\d.* MiB", cache)


def test_a_process_that_does_not_run_is_one_line(tokmill):
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    outcome = tokmill("memory", "--dataset-bytes", "1MB", "--measure", process.pid)
    assert outcome.code == 2
    assert outcome.error == (
        f"--measure: expected the id of a running process, found {process.pid}"
    )


@pytest.mark.parametrize("option", ["--states", "--compare"])
def test_what_is_no_bill_of_host_ram_is_not_measured(tokmill, option: str):
    outcome = tokmill("memory", "--model", "gpt2", "--measure", 1, option)
    assert outcome.code == 2
    assert outcome.error == "--measure: leave out --states and --compare"
