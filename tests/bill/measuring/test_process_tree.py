from __future__ import annotations

import mmap
import os
import subprocess
import sys
import threading

import psutil
import pytest

from tokmill.bill.measuring.process_tree import PeakMemory, tree_memory_bytes

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


def test_the_memory_of_this_process_is_counted():
    rss = psutil.Process().memory_info().rss
    assert 0 < tree_memory_bytes() < 2 * rss + 512 * MIB
    before = tree_memory_bytes()
    held = touched_pages(64 * MIB)
    assert tree_memory_bytes() - before >= 60 * MIB
    held.close()


def test_the_memory_of_children_is_counted_until_they_end():
    before = tree_memory_bytes()
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == b"held\n"
        assert tree_memory_bytes() - before >= 60 * MIB
        child.stdin.close()
        child.wait(timeout=60)
    assert tree_memory_bytes() - before < 60 * MIB


def test_a_child_that_ended_and_is_not_waited_for_counts_nothing():
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE
        with_zombie = tree_memory_bytes()
    # A live interpreter takes some 5 MiB, and this process changes a little by itself.
    assert abs(with_zombie - tree_memory_bytes()) < 3 * MIB


def test_the_peak_stays_when_the_memory_is_gone():
    with PeakMemory(interval_s=60) as memory:
        held = touched_pages(64 * MIB)
        high = memory.sample()
        held.close()
        assert memory.sample() == high
    assert memory.peak_bytes == high


def test_a_thread_samples_by_itself():
    class Noted(PeakMemory):
        """Says when the thread has taken a sample."""

        def __init__(self) -> None:
            super().__init__(interval_s=0.001)
            self.was_sampled = threading.Event()

        def sample(self) -> int:
            peak = super().sample()
            self.was_sampled.set()
            return peak

    with Noted() as memory:
        assert memory.was_sampled.wait(timeout=60)
    assert memory.peak_bytes > 0


def test_the_thread_ends_with_the_context_even_after_an_error():
    n_before = threading.active_count()
    seen: list[int] = []

    def fail() -> None:
        with PeakMemory(interval_s=60):
            seen.append(threading.active_count() - n_before)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        fail()
    assert seen == [1]
    assert threading.active_count() == n_before
