"""A private directory becomes the output, whole; what a killed attempt left is removed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tokmill.errors import StateError, StorageError
from tokmill.storage import storage_errors
from tokmill.trainers.private_directory import is_taken, private_directory

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
    with private_directory(output, replace=True) as folder:
        (folder / "new").write_text("x")
    assert list(tmp_path.iterdir()) == [output]


def test_the_directory_of_a_running_attempt_stays(tmp_path) -> None:
    with private_directory(tmp_path / "out", replace=True) as first:
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


def write_to_a_full_disk(path: Path) -> None:
    with storage_errors(path):
        raise OSError(28, "No space left on device")


def test_errors_name_the_output_and_not_its_private_name(tmp_path) -> None:
    output = tmp_path / "out"
    with pytest.raises(StorageError) as caught, private_directory(output) as folder:
        write_to_a_full_disk(folder / "file")
    assert str(caught.value) == (
        f"{output}/file: no space left on device; nothing was written: "
        "make room and run the same command again"
    )


def test_a_link_in_the_place_of_an_output_is_named(tmp_path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match=r"found a symbolic link: name its target$"):
        is_taken(tmp_path / "link")
    with pytest.raises(StateError, match=r"found a file$"):
        is_taken(tmp_path / "file")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a /proc, where nothing is made")
def test_a_place_without_room_for_a_directory_is_named_without_its_private_name() -> None:
    with (
        pytest.raises(StorageError, match=r"^/proc/out: no such file or directory$"),
        private_directory(Path("/proc/out")),
    ):
        pass


def test_the_current_directory_is_refused_before_anything_is_written(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StateError, match=r"is the current directory, .*: name one inside it"):
        is_taken(Path())


def test_a_name_that_is_too_long_is_a_storage_error(tmp_path) -> None:
    with pytest.raises(StorageError, match="file name too long"):
        is_taken(tmp_path / ("n" * 300))


def test_a_directory_that_cannot_be_listed_may_hold_an_output(tmp_path, monkeypatch) -> None:
    def refuse(self: Path) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "iterdir", refuse)
        with private_directory(tmp_path / "out") as folder:
            (folder / "file").write_text("x")
    assert (tmp_path / "out" / "file").read_text() == "x"


@pytest.mark.skipif(sys.platform != "linux", reason="renameat2 is of Linux")
def test_a_directory_is_replaced_in_one_step(tmp_path, monkeypatch) -> None:
    output = tmp_path / "out"
    output.mkdir()
    (output / "old").touch()

    def rename(path: Path, target: Path) -> None:
        raise AssertionError("a moment without the directory")

    monkeypatch.setattr(Path, "rename", rename)
    with private_directory(output, replace=True) as folder:
        (folder / "new").touch()
    assert [path.name for path in output.iterdir()] == ["new"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
