"""Faults of the machine around a run: its disks, memory, clock and inputs, and a second run.

After each: one clear line, the right exit code, no half file, and the next run gives the bytes of
a run without the fault. Runs are in this process, except where a limit of a process is the fault.
"""

from __future__ import annotations

import errno
import io
import itertools
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import tokmill as tokmill  # the fixture
from tests.cli.test_bad_input import nothing_half_written
from tokmill import pretrain
from tokmill.cli.main import is_out_of_memory

ROWS = [{"text": f"hello world, this is document {i} " * 4} for i in range(1000)]
MANY = ("--shard-tokens", "8000", "--part-bytes", "30kB", "--engine", "reference", "--quiet")


def data_files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*-*.*"))}


@pytest.fixture
def source(tmp_path: Path, write_rows: Callable[..., Path]) -> Path:
    return write_rows(tmp_path / "in.jsonl", ROWS)


@pytest.fixture
def words(source: Path, tokenizer_dir: Path) -> Callable[[Path], tuple[str, ...]]:
    """The words of a run of several parts, in one process."""
    named = ("pretrain", str(source), "-t", str(tokenizer_dir), *MANY, "--workers", "1")
    return lambda out: (*named, "--threads", "1", "-o", str(out))


@pytest.fixture
def run(
    tokmill: Callable[..., Any], words: Callable[[Path], tuple[str, ...]]
) -> Callable[..., Any]:
    return lambda out, *more: tokmill(*words(out), *more)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, tokenizer_dir: Path) -> Path:
    """The dataset of a run without a fault."""
    place = tmp_path_factory.mktemp("whole")
    lines = [json.dumps(row) for row in ROWS]
    (place / "in.jsonl").write_text("\n".join(lines) + "\n")
    pretrain(
        place / "in.jsonl",
        tokenizer=tokenizer_dir,
        output=place / "out",
        engine="reference",
        shard_tokens=8000,
        part_bytes="30kB",
        workers=1,
        threads=1,
    )
    return place / "out"


@pytest.fixture
def is_whole(tokmill: Callable[..., Any], whole: Path) -> Callable[[Path], bool]:
    """Whether a dataset is that of an unbroken run, and `verify` passes."""

    def check(out: Path) -> bool:
        assert tokmill("verify", out).code == 0
        return data_files(out) == data_files(whole)

    return check


# Disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """A file system of its own, mounted with the options that are asked for."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(options: str) -> Path:
        again = "remount," if place.is_mount() else ""
        called = ["mount", "-t", "tmpfs", "-o", again + options, "tmpfs", str(place)]
        done = subprocess.run(called, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"mounting needs root: {done.stderr.strip()}")
        return place

    yield mount
    if place.is_mount():
        subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_is_one_line_and_with_more_room_the_run_continues(
    run, is_whole, whole, small_disk
):
    n_bytes = sum(path.stat().st_size for path in whole.rglob("*.*"))
    out = small_disk(f"size={n_bytes * 3 // 4 // 1024}k") / "out"
    failed = run(out)
    assert failed.code == 5
    assert failed.error.startswith(f"{out}/")
    assert failed.error.endswith(
        "no space left on device; parts that are done are kept: make room and run the same command "
        "again to continue"
    )
    assert nothing_half_written(out)
    done = [path.stem for path in out.glob("parts/*.json")]
    shards = [path for path in out.glob("*-*.bin") if path.name.split("-")[1] in done]
    kept = {path: path.stat().st_ino for path in shards}
    assert kept
    small_disk("size=8m")
    assert run(out).code == 0
    assert {path: path.stat().st_ino for path in kept} == kept
    assert is_whole(out)


def test_a_disk_that_became_read_only_is_named_and_can_still_be_verified(run, is_whole, small_disk):
    disk = small_disk("size=8m")
    assert run(disk / "out").code == 0
    (disk / "out/manifest.json").unlink()
    small_disk("ro")
    for out in (disk / "out", disk / "new"):
        refused = run(out)
        assert refused.code == 5
        assert refused.error.startswith(f"{out}")
        assert refused.error.endswith(
            "read-only file system: choose a place that can be written to"
        )
    small_disk("rw")
    assert run(disk / "out").code == 0
    small_disk("ro")
    assert is_whole(disk / "out")


# Inputs


class Meddled(io.BufferedReader):
    """A file before each read of which something may happen."""

    def __init__(self, path: Path, before_read: Callable[[], None]) -> None:
        super().__init__(io.FileIO(path))
        self._before_read = before_read

    def read(self, size: int | None = -1) -> bytes:
        self._before_read()
        return super().read(size)


@pytest.fixture
def while_read(
    monkeypatch: pytest.MonkeyPatch, source: Path, tmp_path: Path
) -> Callable[[Callable[[], None]], None]:
    """Let something happen once while the run reads its input: after its first commit."""

    def arm(happen: Callable[[], None]) -> None:
        opened = Path.open

        def before_read() -> None:
            if Path.open is not opened and list(tmp_path.glob("out/*-*.bin")):
                monkeypatch.setattr(Path, "open", opened)
                happen()

        def meddle(path: Path, *args: Any, **options: Any) -> Any:
            if path == source:
                return Meddled(path, before_read)
            return opened(path, *args, **options)

        monkeypatch.setattr(Path, "open", meddle)

    return arm


def test_a_read_error_in_the_middle_of_an_input_keeps_all_commits(
    run, is_whole, while_read, source, tmp_path
):
    def fail() -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    while_read(fail)
    failed = run(tmp_path / "out")
    assert failed.code == 5
    said = "cannot be read: input/output error"
    assert failed.error == f"{source}: {said}"
    assert nothing_half_written(tmp_path / "out")
    assert list((tmp_path / "out").glob("*-*.bin"))
    assert run(tmp_path / "out").code == 0
    assert is_whole(tmp_path / "out")


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b'{"text": "one more"}\n')


def replace(path: Path) -> None:
    """Replace a file by one of the same size, of which no line is a record."""
    path.with_suffix(".new").write_bytes(path.read_bytes()[::-1])
    os.utime(path.with_suffix(".new"), (1e9, 1e9))
    path.with_suffix(".new").replace(path)


def write_inside(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-20, io.SEEK_END)
        file.write(b"H")
    os.utime(path, ns=(0, time.time_ns() + 10**9))


def touch(path: Path) -> None:
    os.utime(path, (0, 0))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (grow, " when the run began, "),
        (write_inside, "modified, with as many bytes as before"),
        (replace, "modified, with as many bytes as before"),
        (touch, "modified, with as many bytes as before"),
    ],
)
def test_an_input_that_changes_while_it_is_read_is_named(
    run, is_whole, while_read, source, tmp_path, change, found
):
    while_read(lambda: change(source))
    failed = run(tmp_path / "out")
    assert failed.code == 5
    assert failed.error.startswith(f"{source}: changed while it was read: ")
    assert found in failed.error
    assert nothing_half_written(tmp_path / "out")
    refused = run(tmp_path / "out")
    assert refused.code == 6
    assert f"{source} has changed" in refused.error
    if change is touch:
        assert run(tmp_path / "out", "--overwrite").code == 0
        assert is_whole(tmp_path / "out")


# The clock


def test_a_clock_that_jumps_changes_nothing(
    run, is_whole, while_read, source, tmp_path, monkeypatch
):
    os.utime(source, (4e9, 4e9))  # in the year 2096
    turns = itertools.cycle((1e9, -1e9, 4e9, 0))
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + next(turns))
    monkeypatch.setattr(time, "time_ns", lambda: int(time.time() * 1e9))

    def fail() -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    while_read(fail)
    assert run(tmp_path / "out").code == 5
    assert run(tmp_path / "out").code == 0
    assert is_whole(tmp_path / "out")


# Two runs


def test_a_second_run_is_refused_while_the_first_stands_still(words, run, is_whole, tmp_path):
    out = tmp_path / "out"
    called = [sys.executable, "-m", "tokmill", *words(out)]
    with subprocess.Popen(called, stderr=subprocess.PIPE) as first:
        while not (out / "plan.json").exists():
            assert first.poll() is None, "it ended before it could be stopped"
            time.sleep(0.005)
        first.send_signal(signal.SIGSTOP)
        second = run(out)
        first.send_signal(signal.SIGCONT)
        _, said = first.communicate(timeout=300)
    assert second.code == 6
    assert second.error == (
        f"{out}: another run is writing here; wait for it or choose another --output"
    )
    assert (first.returncode, said) == (0, b"")
    assert is_whole(out)


# Memory


def test_too_little_memory_is_one_line_and_the_run_continues_with_more(
    words, run, is_whole, tmp_path
):
    # Within some 20 MiB of 170 and 240, OpenBLAS ends the process when NumPy is imported.
    out, mebibytes = tmp_path / "out", 280
    done = subprocess.run(
        [sys.executable, "-m", "tokmill", *words(out)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (mebibytes << 20,) * 2),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 7, done.stderr
    *_, line = done.stderr.splitlines()
    assert line == (
        f"error: out of memory (ulimit -v allows {mebibytes}.0 MiB): give this process more "
        "memory, or use fewer --workers and --threads, and run the same command again; a run "
        "keeps the parts that are done"
    )
    assert "Traceback" not in done.stderr
    assert not (out / "manifest.json").exists()
    assert run(out).code == 0
    assert is_whole(out)


def caused(error: BaseException) -> BaseException:
    later = RuntimeError("the engine did not start")
    later.__cause__ = error
    return later


@pytest.mark.parametrize(
    ("error", "is_lack"),
    [
        (MemoryError(), True),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), True),
        (ImportError("libarrow.so.2600: failed to map segment from shared object"), True),
        (RuntimeError("can't start new thread"), True),
        (caused(MemoryError()), True),
        (SystemError("error return without exception set"), False),
        (OSError(errno.EIO, os.strerror(errno.EIO)), False),
        (ImportError("No module named 'numpy'"), False),
        (caused(ValueError("a bug")), False),
    ],
)
def test_a_lack_of_memory_is_told_from_a_bug(error, is_lack):
    assert is_out_of_memory(error) == is_lack
