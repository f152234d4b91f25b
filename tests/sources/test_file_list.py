"""Which files are one: also where a file system does not give each file a number of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tokmill.settings.schema import InputSettings
from tokmill.sources.files import discover


@pytest.fixture
def number_files(monkeypatch):
    """Let every file have one number, as some network and overlay mounts report it."""
    of_system = os.stat

    def number(inode: int) -> None:
        def stat(path, *arguments, **options):
            real = of_system(path, *arguments, **options)
            more = {"st_mtime": real.st_mtime, "st_mtime_ns": real.st_mtime_ns}
            return os.stat_result((real.st_mode, inode, *real[2:]), more)

        monkeypatch.setattr(os, "stat", stat)

    return number


def settled(folder):
    """Return the names of the files of a folder, each once."""
    found = discover(InputSettings(paths=(str(folder),)))
    return [Path(file.path).name for file in found.files]


def write(folder, *names):
    paths = [folder / name for name in names]
    for path in paths:
        path.write_bytes(b"{}\n")
        os.utime(path, ns=(0, 0))
    return paths


def test_files_of_inode_0_are_never_taken_for_one(tmp_path, number_files):
    write(tmp_path, "a.jsonl", "b.jsonl")
    number_files(0)
    assert settled(tmp_path) == ["a.jsonl", "b.jsonl"]


def test_a_file_of_inode_0_is_known_again_by_its_real_path(tmp_path, number_files):
    (file,) = write(tmp_path, "a.jsonl")
    (tmp_path / "link.jsonl").symlink_to(file)
    number_files(0)
    assert settled(tmp_path) == ["a.jsonl"]


@pytest.mark.parametrize("differs", ["size", "time"])
def test_files_of_one_inode_that_differ_are_two(tmp_path, number_files, differs):
    _, other = write(tmp_path, "a.jsonl", "b.jsonl")
    number_files(7)
    assert settled(tmp_path) == ["a.jsonl"]
    if differs == "size":
        other.write_bytes(b"{}\n{}\n")
        os.utime(other, ns=(0, 0))
    else:
        os.utime(other, ns=(0, 1))
    assert settled(tmp_path) == ["a.jsonl", "b.jsonl"]


def test_linked_directories_of_inode_0_are_all_entered(tmp_path, number_files):
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, "a.jsonl")
    (tmp_path / "d").mkdir()
    for name in ("x", "y"):
        (tmp_path / "d" / name).symlink_to(tmp_path / name)
    (tmp_path / "d" / "self").symlink_to(tmp_path / "d")
    number_files(0)
    found = discover(InputSettings(paths=(str(tmp_path / "d"),)))
    assert [file.path for file in found.files] == [f"{tmp_path}/d/{name}/a.jsonl" for name in "xy"]
    assert found.ignored == [f"ignored: 1 link to a directory read already ({tmp_path}/d/self)"]
