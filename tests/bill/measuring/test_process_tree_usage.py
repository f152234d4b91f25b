from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tokmill.bill.measuring.process_tree import SHM, tree_usage

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
