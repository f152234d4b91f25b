from __future__ import annotations

import subprocess
import sys

from tokmill.bill.measuring.child import MARKS, MODULE, Run


def talk(run: Run) -> list[str]:
    """Give what the trainer says; every mark is answered."""
    lines = f"{run.as_line()}\n" + "\n" * len(MARKS)
    done = subprocess.run(
        [sys.executable, "-m", MODULE], input=lines, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_a_run_is_the_same_after_its_line():
    run = Run(("a", "b"), "<u2", True, "read", 2, 3, 4, "spawn", 5, False, 6)
    assert Run.from_line(run.as_line()) == run


def test_the_trainer_stands_still_at_each_mark(make_dataset):
    paths = tuple(map(str, make_dataset(list(range(40))).glob("*.bin")))
    run = Run(paths, "<u2", False, "read", 2, 4, 0, "fork", 2, torch=False)
    assert talk(run) == ["started", "loaded", "half", "read", "ended"]


def test_the_trainer_ends_when_nobody_watches_it_any_more():
    run = Run((), "<u2", False, "read", 1, 1, 0, "fork", 1, torch=False)
    done = subprocess.run(
        [sys.executable, "-m", MODULE], input=f"{run.as_line()}\n", capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "started\n", "")


def test_one_batch_is_the_last_and_has_no_half(make_dataset):
    paths = tuple(map(str, make_dataset(list(range(8))).glob("*.bin")))
    run = Run(paths, "<u2", False, "read", 2, 4, 0, "fork", 2, torch=False)
    assert talk(run) == ["started", "loaded", "read", "ended"]


def test_a_process_that_only_starts_opens_nothing():
    run = Run((), "<u2", False, "read", 1, 1, 0, "fork", 1, torch=False)
    assert talk(run) == ["started", "ended"]
