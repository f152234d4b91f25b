"""What commands say of a dataset while a run writes it, and afterwards."""

from __future__ import annotations

import re
import shlex
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import tokmill as package
from tests.cli.conftest import GOOD, write_lines
from tokmill.dataset.lock import holder_of
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


@pytest.mark.parametrize("words", READERS)
def test_readers_say_that_tasks_are_writing_and_what_to_do_at_their_end(tokmill, out, words):
    command, *more = words.split()
    with locked(out, is_shared=True), locked(out, is_shared=True):
        outcome = tokmill(command, out, *more)
        assert outcome.code == 6, outcome.err
        assert outcome.error.startswith(f"{out}: tasks of a run are writing here: wait for their ")
        assert tokmill("status", out).code == 0
        assert "tasks are writing it" in tokmill("status", out).out
    assert f", then run tokmill finish {out}" in outcome.error


def test_whoever_looks_at_a_lock_keeps_nobody_out_and_nobody_working(out):
    with ThreadPoolExecutor(8) as pool:
        looks = [pool.submit(holder_of, out) for _ in range(40)]
        with locked(out, is_shared=True):
            pass
        with locked(out):
            pass
    assert {look.result() for look in looks} <= {"", "a run", "tasks of a run"}
    assert holder_of(out) == ""


def test_of_a_run_into_a_store_the_time_of_its_newest_object_is_said(
    tokmill, tokenizer_dir, tmp_path, url
):
    path = write_lines(tmp_path / "in.jsonl", [*GOOD, b"{bad}"])
    words = ("--engine", "reference", "--part-bytes", "1kB", "--workers", "1")
    run = ("pretrain", path, "-t", tokenizer_dir, "-o", url, *words)
    assert tokmill(*run, "--on-error", "fail").code == 3
    outcome = tokmill("verify", url)
    assert outcome.code == 6
    told = outcome.error.partition("but its newest object is of ")[2]
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC ", told), outcome.error
    advised = told.partition("(")[2].partition(" shows")[0]
    shown = tokmill(*shlex.split(advised)[1:]).out
    assert f"newest object of {told[:23]}" in shown
    assert "progress" in shown
    assert tokmill(*run, "-q").code == 0  # the same command
    assert "newest" not in tokmill("status", url).out


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
