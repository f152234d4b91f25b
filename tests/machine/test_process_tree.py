"""The memory of a process and its children: what counts, and its peak."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tokmill.machine import process_tree
from tokmill.machine.process_tree import MEASURING, SHM, Sampler, tree_of, tree_usage

MIB = 1 << 20

CHILD = """
import sys
held = bytearray(64 << 20)
held[::4096] = b"x" * len(held[::4096])
print("held", flush=True)
sys.stdin.read()
"""


def touched_pages(n_bytes: int) -> mmap.mmap:
    pages = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.write(b"x" * n_bytes)
    return pages


def committed() -> int:
    return tree_usage(tree_of(os.getpid())).committed


def test_the_memory_of_children_is_counted_until_they_end():
    before = committed()
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == b"held\n"
        assert committed() - before >= 60 * MIB
        child.stdin.close()
        child.wait(timeout=600)
    assert committed() - before < 60 * MIB


GRANDCHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', CHILD], check=True)"


@pytest.mark.parametrize("has_lists", [True, False])
def test_a_tree_has_the_children_of_children_and_no_other_process(monkeypatch, has_lists):
    if sys.platform != "linux" and has_lists:
        pytest.skip("/proc is Linux's")
    monkeypatch.setattr(process_tree, "_has_lists", lambda: has_lists)
    code = f"CHILD = {CHILD!r}; {GRANDCHILD}"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        tree = tree_of(os.getpid())
        assert tree[0] == os.getpid()
        assert child.pid in tree
        inner = tree_of(child.pid)
        assert len(inner) == 2
        assert set(inner) < set(tree)
        assert os.getppid() not in tree
        child.stdin.close()
        child.wait(timeout=600)


def test_the_peak_stays_when_the_memory_is_gone():
    with Sampler(cpu_share=MEASURING) as sampler:
        before = sampler.sample()
        held = touched_pages(64 * MIB)
        high = sampler.sample()
        held.close()
        assert sampler.sample().committed < high.committed
    assert sampler.peak.committed >= high.committed >= before.committed + 60 * MIB


def test_the_thread_samples_by_itself_and_ends_with_the_context_even_after_an_error():
    n_before = threading.active_count()
    sampler = Sampler(cpu_share=MEASURING)

    def fail() -> None:
        with sampler:
            while not sampler.looks:
                threading.Event().wait(0.001)
            assert threading.active_count() == n_before + 1
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        fail()
    assert threading.active_count() == n_before
    assert sampler.peak.committed > 0


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
    # Other objects of this process may give a page back meanwhile.
    assert after.shared - before.shared == pytest.approx(4 * MIB, abs=MIB)
