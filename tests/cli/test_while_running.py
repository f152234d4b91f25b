"""What commands say of a dataset while a run writes it, and afterwards."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

import tokmill as package
from tests.cli.conftest import GOOD, write_lines
from tokmill.errors import StateError
from tokmill.place.directory import locked


@pytest.fixture
def out(pretrain, tmp_path) -> Path:
    """The output of a run that is half done: a record is broken, and the run stopped at it."""
    path = write_lines(tmp_path / "in.jsonl", [*GOOD, b"{bad}"])
    words = ("--part-bytes", "1kB", "--workers", "1", "--on-error", "fail")
    assert pretrain(path, *words).code == 3
    return tmp_path / "out"


READERS = (
    "report",
    "verify",
    "stats",
    "inspect",
    "export --to nanogpt -o elsewhere",
    "pack --length 8",
)


@pytest.mark.parametrize("words", READERS)
def test_readers_say_that_a_run_is_writing_and_name_a_command_that_works(tokmill, out, words):
    command, *more = words.split()
    with locked(out):
        outcome = tokmill(command, out, *more)
        assert outcome.code == 6, outcome.err
        assert outcome.error.startswith(f"{out}: a run is writing here: wait for its end (")
        advised = outcome.error.partition("(")[2].partition(" shows")[0]
        assert tokmill(*shlex.split(advised)[1:]).code == 0
    assert "run the same command again" in tokmill("verify", out).error


def test_python_says_so_too(out):
    with locked(out), pytest.raises(StateError, match="a run is writing here"):
        package.open(out)


def test_status_shows_how_far_a_run_is_that_is_no_array(tokmill, out):
    with locked(out):
        working = tokmill("status", out).out.splitlines()
    rows = {line.split()[0]: line.split(maxsplit=1)[1] for line in working}
    assert "%" in rows["progress"]
    assert "tokens" in rows["progress"]
    assert rows["dataset"] == "a run is writing it"
    n_done, n_parts = rows["done"].split(" of ")
    assert rows["running"].startswith(f"{int(n_parts) - int(n_done)}: ")
    assert rows["missing"] == "0"
    stopped = tokmill("status", out).out
    assert "progress" not in stopped
    assert "dataset  not finished" in stopped
