from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tokmill.measure.machine import cgroup_memory, memory_limit, this_machine

GIB = 1 << 30


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cgroup"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def membership(root: Path, text: str) -> Path:
    path = root.parent / "membership"
    path.write_text(text)
    return path


def test_the_smallest_limit_of_all_ancestors_holds_in_version_2(root: Path):
    write(root / "a/b/memory.max", "max\n")
    write(root / "a/memory.max", f"{4 * GIB}\n")
    write(root / "memory.max", f"{8 * GIB}\n")
    assert memory_limit(membership(root, "0::/a/b\n"), root) == 4 * GIB


def test_the_smallest_limit_of_all_ancestors_holds_in_version_1(root: Path):
    write(root / "memory/a/b/memory.limit_in_bytes", f"{6 * GIB}\n")
    write(root / "memory/a/memory.limit_in_bytes", f"{2 * GIB}\n")
    write(root / "memory/memory.limit_in_bytes", "9223372036854771712\n")
    write(root / "a/b/memory.max", "1\n")  # another controller's tree
    text = "5:cpu,cpuacct:/a/b\n4:memory:/a/b\n"
    assert memory_limit(membership(root, text), root) == 2 * GIB


def test_a_container_that_is_told_another_path_sees_its_limit_at_the_root(root: Path):
    write(root / "memory.max", f"{3 * GIB}\n")
    assert memory_limit(membership(root, "0::/docker/1234\n"), root) == 3 * GIB


def test_no_limit_is_none(root: Path):
    write(root / "memory.max", "max\n")
    assert memory_limit(membership(root, "0::/\n"), root) == 0
    assert memory_limit(root / "missing", root) == 0
    write(root / "memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert memory_limit(membership(root, "4:memory:/\n"), root) == 0


def test_what_a_cgroup_counts_has_the_same_names_in_both_versions(root: Path):
    write(root / "two/memory.max", "max")
    write(root / "two/memory.peak", "70\n")
    write(root / "two/memory.current", "60\n")
    write(root / "two/memory.stat", "anon 10\nfile 20\nshmem 5\nother 1\n")
    expected = {"peak": 70, "current": 60, "anon": 10, "file": 20, "shmem": 5}
    assert cgroup_memory(membership(root, "0::/two\n"), root) == expected
    write(root / "memory/one/memory.limit_in_bytes", "9223372036854771712\n")
    write(root / "memory/one/memory.max_usage_in_bytes", "70\n")
    write(root / "memory/one/memory.usage_in_bytes", "60\n")
    write(root / "memory/one/memory.stat", "total_rss 10\ntotal_cache 20\ntotal_shmem 5\n")
    assert cgroup_memory(membership(root, "4:memory:/one\n"), root) == expected
    assert cgroup_memory(root / "missing", root) == {}


def test_this_machine_has_memory():
    found = this_machine()
    assert found.memory_bytes == psutil.virtual_memory().total
    assert 0 < found.available_bytes < found.memory_bytes
    bare = this_machine(torch=False)
    assert bare.interpreter_bytes < found.interpreter_bytes
    assert bare.forked_bytes < found.forked_bytes
