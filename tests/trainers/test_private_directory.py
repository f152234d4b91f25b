"""A private directory becomes the output, whole; what a killed attempt left is removed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tokmill.trainers.private_directory import private_directory

KILLED = """
import os, signal, sys
from pathlib import Path
from tokmill.trainers.private_directory import private_directory
with private_directory(Path(sys.argv[1])) as folder:
    (folder / "half").write_text("x")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def stop(path: Path) -> None:
    path.write_text("x")
    raise KeyboardInterrupt


def test_a_directory_appears_with_all_its_files(tmp_path) -> None:
    with private_directory(tmp_path / "a" / "out") as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "file").write_text("x")
        assert not (tmp_path / "a" / "out").exists()
    assert (tmp_path / "a" / "out" / "sub" / "file").read_text() == "x"
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["out"]


def test_a_directory_that_fails_leaves_the_old_one(tmp_path) -> None:
    output = tmp_path / "out"
    with private_directory(output) as folder:
        (folder / "old").write_text("x")
    with pytest.raises(KeyboardInterrupt), private_directory(output) as folder:
        stop(folder / "new")
    assert [path.name for path in output.iterdir()] == ["old"]
    assert list(tmp_path.iterdir()) == [output]


def test_the_next_attempt_removes_what_a_killed_one_left(tmp_path) -> None:
    output = tmp_path / "out"
    done = subprocess.run([sys.executable, "-c", KILLED, output], check=False)
    assert done.returncode == -9
    assert not output.exists()
    assert len(list(tmp_path.iterdir())) == 1
    with private_directory(output) as folder:
        (folder / "new").write_text("x")
    assert list(tmp_path.iterdir()) == [output]


def test_the_directory_of_a_running_attempt_stays(tmp_path) -> None:
    with private_directory(tmp_path / "out") as first:
        with private_directory(tmp_path / "out") as second:
            (second / "second").write_text("x")
        assert first.is_dir()
        (first / "first").write_text("x")
    names = [path.name for path in (tmp_path / "out").iterdir()]
    assert names == ["first"]


def test_only_private_names_are_removed(tmp_path) -> None:
    mine = tmp_path / ".out.mine.tmp"
    mine.mkdir()
    link = tmp_path / ".out.1-0123abcd.tmp"
    link.symlink_to(mine)
    with private_directory(tmp_path / "out"):
        pass
    assert mine.is_dir()
    assert Path(link).is_symlink()
