from __future__ import annotations

import mmap
import os
import subprocess
import sys
import threading

import pytest

from tokmill.bill.measuring.process_tree import (
    MEASURING,
    Sampler,
    tree_of,
    tree_usage,
)

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


def test_the_memory_of_this_process_is_counted():
    before = committed()
    held = touched_pages(64 * MIB)
    assert committed() - before >= 60 * MIB
    held.close()


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
        child.wait(timeout=60)
    assert committed() - before < 60 * MIB


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
