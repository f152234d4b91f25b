"""A private directory becomes the output, whole; what a killed attempt left is removed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tokmill.errors import StateError
from tokmill.trainers import private_directory as private
from tokmill.trainers.private_directory import is_taken, private_directory

KILLED = """
import os, signal, sys
from pathlib import Path
from tokmill.trainers.private_directory import private_directory
with private_directory(Path(sys.argv[1])) as folder:
    (folder / "half").write_text("x")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def fill(folder: Path, name: str) -> None:
    """Write an export of one file."""
    (folder / name).write_text("x")
    files = [{"name": name, "bytes": 1, "blake3": "0" * 64}]
    record = {"format": "tokmill export", "files": files}
    (folder / "tokmill-export.json").write_text(json.dumps(record))


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
    with private_directory(output, replace=True) as folder:
        (folder / "new").write_text("x")
    assert list(tmp_path.iterdir()) == [output]


def test_the_directory_of_a_running_attempt_stays(tmp_path) -> None:
    with private_directory(tmp_path / "out", replace=True) as first:
        with private_directory(tmp_path / "out") as second:
            fill(second, "second")
        assert first.is_dir()
        (first / "first").write_text("x")
    names = [path.name for path in (tmp_path / "out").iterdir()]
    assert names == ["first"]


def test_what_others_wrote_meanwhile_is_never_removed(tmp_path) -> None:
    output = tmp_path / "out"
    attempt = private_directory(output)
    attempt.__enter__()
    output.mkdir()
    (output / "theirs").write_text("x")
    with pytest.raises(StateError, match="something was written there meanwhile"):
        attempt.__exit__(None, None, None)
    assert (output / "theirs").read_text() == "x"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_link_in_the_place_of_an_output_is_named(tmp_path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match=r"found a symbolic link: name its target$"):
        is_taken(tmp_path / "link")
    with pytest.raises(StateError, match=r"found a file$"):
        is_taken(tmp_path / "file")


def test_the_current_directory_is_refused_before_anything_is_written(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StateError, match=r"is the current directory, .*: name one inside it"):
        is_taken(Path())


@pytest.mark.parametrize("in_one_step", [True, False])
@pytest.mark.parametrize("name", ["theirs", ".theirs", "empty/"])
def test_what_came_while_a_directory_is_replaced_is_never_removed(
    tmp_path, monkeypatch, name, in_one_step
) -> None:
    if not in_one_step:
        monkeypatch.setattr(private, "_exchange", lambda one, other: False)
    output = tmp_path / "out"
    output.mkdir()
    fill(output, "old")

    def replace() -> None:
        with private_directory(output, replace=True) as folder:
            (folder / "new").touch()
            if name.endswith("/"):
                (output / name).mkdir()
            else:
                (output / name).write_text("years of work")

    with pytest.raises(StateError, match=r"out: holds more than an export \(.*\): nothing was"):
        replace()
    assert (output / name).exists()
    assert (output / "old").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.skipif(sys.platform != "linux", reason="renameat2 is of Linux")
def test_a_directory_is_replaced_in_one_step(tmp_path, monkeypatch) -> None:
    output = tmp_path / "out"
    output.mkdir()
    fill(output, "old")

    def rename(path: Path, target: Path) -> None:
        raise AssertionError("a moment without the directory")

    monkeypatch.setattr(Path, "rename", rename)
    with private_directory(output, replace=True) as folder:
        (folder / "new").touch()
    assert [path.name for path in output.iterdir()] == ["new"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
