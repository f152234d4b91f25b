"""What a file system can do, found by doing it: nothing is left behind."""

from __future__ import annotations

import errno
import os
from collections import namedtuple
from pathlib import Path

import psutil
import pytest

from tokmill.api.doctor import disk
from tokmill.api.doctor.disk import examine_disk

Mount = namedtuple("Mount", "mountpoint fstype")


def refuse(*_: object) -> None:
    raise OSError(errno.EPERM, "operation not permitted")


def test_a_directory_that_can_be_written(tmp_path: Path) -> None:
    found = examine_disk("here", tmp_path)
    assert (found.use, found.path, found.problem) == ("here", str(tmp_path), "")
    assert found.hard_links
    assert found.free_bytes > 0
    assert found.sync_s > 0
    assert list(tmp_path.iterdir()) == []


def test_without_hard_links_nothing_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "hardlink_to", refuse)
    monkeypatch.setattr(disk, "share_blocks", lambda old, new: True)
    found = examine_disk("here", tmp_path)
    assert (found.hard_links, found.reflinks, found.problem) == (False, True, "")
    assert list(tmp_path.iterdir()) == []


def test_a_sync_that_fails_is_a_problem_and_nothing_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", refuse)
    found = examine_disk("here", tmp_path)
    assert found.problem == "operation not permitted"
    assert list(tmp_path.iterdir()) == []


def test_a_missing_directory_is_a_problem(tmp_path: Path) -> None:
    found = examine_disk("temporary", tmp_path / "missing")
    assert found.problem == "no such file or directory"
    assert found.free_bytes > 0  # of the file system that would hold it


def test_the_file_system_is_that_of_the_nearest_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    mounts = [Mount("/", "ext4"), Mount(str(inner), "nfs4"), Mount(f"{inner}-other", "xfs")]
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: mounts)
    assert examine_disk("here", inner).file_system == "nfs4"
    assert examine_disk("here", tmp_path).file_system == "ext4"


def test_without_a_list_of_mounts_the_file_system_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: refuse())
    assert examine_disk("here", tmp_path).file_system == ""
