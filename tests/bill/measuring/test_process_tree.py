from __future__ import annotations

import mmap
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from tokmill.bill.measuring.process_tree import (
    IN_BACKGROUND,
    MEASURING,
    Sampler,
    Usage,
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


def stat(folder: Path, pid: int, name: str, parent: int) -> None:
    (folder / str(pid)).mkdir(parents=True)
    (folder / str(pid) / "stat").write_text(f"{pid} ({name}) S {parent} {pid} 0 0 -1\n")


def test_the_descendants_of_a_process_are_found_whatever_their_names(tmp_path):
    (tmp_path / "self").mkdir()
    (tmp_path / "self/stat").write_text("")
    (tmp_path / "7").mkdir()  # it ends just now
    stat(tmp_path, 1, "init", 0)
    stat(tmp_path, 10, "me", 1)
    stat(tmp_path, 11, "a) S 1 (b", 10)
    stat(tmp_path, 12, "c d", 11)
    stat(tmp_path, 13, "another's", 1)
    assert tree_of(10, tmp_path) == [10, 11, 12]
    assert tree_of(99, tmp_path) == [99]


def test_without_proc_the_descendants_are_those_of_psutil(tmp_path):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.pid in tree_of(os.getpid(), tmp_path)
        assert set(tree_of(os.getpid())) == set(tree_of(os.getpid(), tmp_path))
        child.communicate(b"\n")
    assert tree_of(child.pid, tmp_path) == [child.pid]


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


def test_a_child_that_ended_and_is_not_waited_for_counts_nothing():
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE
        with_zombie = committed()
    # A live interpreter takes some 5 MiB, and this process changes a little by itself.
    assert abs(with_zombie - committed()) < 3 * MIB


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


def test_a_child_that_is_gone_at_once_does_not_count(monkeypatch):
    """A process between vfork and exec shows the memory of its parent as its own."""
    name = "tokmill.bill.measuring.process_tree"
    searches = []

    def tree(pid: int) -> list[int]:
        searches.append(pid)
        return [pid, -1] if len(searches) in (2, 4) else [pid]

    monkeypatch.setattr(f"{name}.TREE_S", 0.0)
    monkeypatch.setattr(f"{name}.tree_of", tree)
    monkeypatch.setattr(f"{name}.tree_usage", lambda pids: Usage(100 * len(pids)))
    monkeypatch.setattr(f"{name}._cheap_bytes", lambda pids: 100 * len(pids))
    with Sampler(cpu_share=MEASURING) as sampler:
        while len(searches) < 8:
            time.sleep(0.001)
    assert sampler.peak.committed == 100


@pytest.mark.parametrize(("share", "looks"), [(IN_BACKGROUND, 10), (MEASURING, 100)])
def test_samples_take_their_share_of_a_processor_at_most(share: float, looks: int):
    class Timed(Sampler):
        """Keeps the processor time of its thread."""

        cpu_s = 0.0

        def _watch(self) -> None:
            super()._watch()
            self.cpu_s = time.thread_time()

    start = time.perf_counter()
    with Timed(cpu_share=share) as sampler:
        while sampler.looks < looks:
            threading.Event().wait(0.01)
    wall_s = time.perf_counter() - start
    assert sampler.cpu_s < share * wall_s + 0.05  # the first samples come at once
