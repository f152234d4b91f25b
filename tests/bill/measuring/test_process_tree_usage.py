from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tokmill.bill.measuring.process_tree import MEASURING, SHM, Sampler, Usage, tree_of, tree_usage

MIB = 1 << 20
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")

HOLDER = """
import mmap, sys
held = None
for line in sys.stdin:
    kind, _, size = line.strip().partition(" ")
    if kind == "anonymous":
        held = bytearray(b"x") * int(size)
    elif kind == "file":
        file = open(size, "rb")
        held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        sum(held[::4096])
    elif kind == "spike":
        held = bytearray(b"x") * int(size)
        for _ in range(5):
            held.count(b"y")
        held = None
    print(kind, flush=True)
"""


@contextmanager
def holder() -> Iterator[subprocess.Popen[str]]:
    """Run a process that holds memory when told."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            tell(process, "ready")
            yield process
        finally:
            process.kill()


def tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
    process.stdout.readline()


@LINUX
def test_written_memory_is_committed_and_mapped_files_are_not(tmp_path: Path):
    path = tmp_path / "file"
    path.write_bytes(bytes(48 * MIB))
    with holder() as process:
        before = tree_usage([process.pid])
        tell(process, f"anonymous {64 * MIB}")
        written = tree_usage([process.pid])
        tell(process, f"file {path}")
        mapped = tree_usage([process.pid])
    assert before.exact
    assert 60 * MIB < written.committed - before.committed < 70 * MIB
    assert abs(mapped.committed - before.committed) < 8 * MIB
    assert 44 * MIB < mapped.file - written.file < 54 * MIB


@LINUX
@pytest.mark.skipif(not SHM.exists(), reason="no /dev/shm")
def test_shared_memory_counts_once_while_nobody_maps_it():
    with tempfile.TemporaryFile(dir=SHM) as file:
        before = tree_usage([os.getpid()])
        file.write(b"x" * 4 * MIB)
        file.flush()
        twin = os.dup(file.fileno())
        after = tree_usage([os.getpid()])
        os.close(twin)
    assert after.shared - before.shared == 4 * MIB


def test_where_shares_are_not_told_only_rss_is_read(tmp_path: Path):
    with holder() as process:
        tell(process, f"anonymous {64 * MIB}")
        found = tree_usage([process.pid], proc=tmp_path)
        assert found.anonymous == psutil.Process(process.pid).memory_info().rss > 64 * MIB
    assert not found.exact


def test_a_process_that_has_ended_takes_nothing():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert tree_usage([process.pid]).committed == 0
    assert tree_of(process.pid) == [process.pid]


def test_a_tree_is_a_process_and_all_below_it():
    with holder() as process:
        assert tree_of(os.getpid())[0] == os.getpid()
        assert process.pid in tree_of(os.getpid())


@LINUX
def test_where_memory_details_may_not_be_read_only_rss_is_known():
    if os.getuid() and psutil.Process(1).uids().real == os.getuid():
        pytest.skip("the first process is ours")
    code = (
        "import os, psutil\n"
        "from tokmill.bill.measuring.process_tree import tree_usage\n"
        "if os.getuid() == 0: os.setuid(65534)\n"
        "found = tree_usage([1])\n"
        "print(found.exact, found.anonymous == psutil.Process(1).memory_info().rss)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False True\n"


@LINUX
def test_a_peak_between_two_exact_samples_is_seen(monkeypatch):
    monkeypatch.setattr("tokmill.bill.measuring.process_tree.EXACT_S", 600)
    with holder() as process:
        with Sampler(process.pid, MEASURING) as sampler:
            while sampler.looks < 2:  # the first sample is exact
                tell(process, "ready")
            before = sampler.peak
            tell(process, f"spike {100 * MIB}")
        after = tree_usage([process.pid])
    assert 90 * MIB < sampler.peak.committed - before.committed < 108 * MIB
    assert after.committed - before.committed < 8 * MIB


def test_committed_memory_is_what_cannot_be_given_back():
    assert Usage(anonymous=3, shared=4, file=50).committed == 7
