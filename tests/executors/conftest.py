"""What the tests of this room share: the command line in a process of its own, and its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tokmill.config import Config
from tokmill.executors.run import run

DEADLINE_S = 60
POLL_S = 0.005


class Command:
    """A `tokmill` process that is watched, and stopped at a moment that its files show."""

    def __init__(self, arguments: list[str], errors: Path) -> None:
        self._errors = errors
        with errors.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tokmill", *arguments],
                stdout=subprocess.DEVNULL,
                stderr=file,
                start_new_session=True,
            )

    def stop_when(self, reached: Callable[[], bool], stop: signal.Signals) -> int:
        """Send a signal as soon as `reached` holds, and give the exit status."""
        deadline = time.monotonic() + DEADLINE_S
        while not reached():
            assert time.monotonic() < deadline
            try:
                self.process.wait(POLL_S)
            except subprocess.TimeoutExpired:
                continue
            pytest.fail(f"it ended before it could be stopped: {self.errors()}")
        self.process.send_signal(stop)
        return self.process.wait(DEADLINE_S)

    def errors(self) -> str:
        return self._errors.read_text()


@pytest.fixture
def start(tmp_path) -> Iterator[Callable[..., Command]]:
    """Start a command; what still runs at the end is killed with its session."""
    started: list[Command] = []

    def make(*arguments: object) -> Command:
        command = Command([str(a) for a in arguments], tmp_path / f"errors-{len(started)}")
        started.append(command)
        return command

    yield make
    for command in started:
        if command.process.poll() is None:
            os.killpg(command.process.pid, signal.SIGKILL)
            command.process.wait()


@pytest.fixture(scope="session")
def finish_command() -> Callable[..., None]:
    """Run a command to its end; it must succeed."""

    def run(*arguments: object) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "tokmill", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    return run


ROWS = [{"text": f"hello {i} " * (i % 5 + 1)} for i in range(60)]


@pytest.fixture
def sources(tmp_path, write_rows) -> list[Path]:
    """Two files of 60 and 21 records, the last of them broken."""
    return [
        write_rows(tmp_path / "a.jsonl", ROWS),
        write_rows(tmp_path / "b.jsonl", [*ROWS[:20], b"{bad"]),
    ]


@pytest.fixture
def out(tmp_path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def make_config(out, sources, configure) -> Callable[..., Config]:
    """Make the settings of a run of several parts and steps; paths and settings may be others."""

    def make(*paths: Path, **change: object) -> Config:
        settings = {"part_bytes": 700, "shard_tokens": 150, "max_reject_fraction": 1.0}
        return configure(out, *(paths or sources), **settings | change)

    return make


@pytest.fixture
def begun(out, make_config, listener) -> dict[str, object]:
    """A finished run whose last part and manifest are taken away: one that can be continued."""
    manifest = run(make_config(), listener)
    (out / "manifest.json").unlink()
    max((out / "parts").iterdir()).unlink()
    return manifest
