from __future__ import annotations

import dataclasses
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import psutil
import pytest

from tokmill import children
from tokmill.errors import RecordError, WorkerError
from tokmill.run import workers as worker_processes
from tokmill.run.finish import run

ROWS = [{"text": f"hello {i} " * 5} for i in range(400)]
SECONDS = 120
"""A bound that means a hang, on a busy machine too."""


@pytest.fixture
def plan(tmp_path, configure, plan_of, write_rows):
    """A plan of many small parts."""
    source = write_rows(tmp_path / "in.jsonl", ROWS)
    return plan_of(configure(tmp_path / "out", source, part_bytes=600))


@pytest.fixture
def workers() -> Callable[[], list[psutil.Process]]:
    """The processes that a test has started; earlier tests may have left a resource tracker."""
    before = set(psutil.Process().children(recursive=True))
    return lambda: [one for one in psutil.Process().children(recursive=True) if one not in before]


def temporaries(directory) -> list[str]:
    return [path.name for path in directory.rglob(".*.tmp")]


def test_a_killed_worker_is_an_error_at_once_and_what_is_committed_stays(plan, tmp_path, workers):
    killed = []

    def kill_one(progress) -> None:
        if not killed:
            killed.append(workers()[0].pid)
            os.kill(killed[0], signal.SIGKILL)
            killed.append(time.monotonic())

    with pytest.raises(WorkerError) as caught:
        worker_processes.run_parts(plan.spec, plan.parts, kill_one, 2)
    assert time.monotonic() - killed[1] < SECONDS
    assert str(caught.value).startswith("a worker process died (killed, or out of memory): ")
    assert workers() == []
    done = len(list((tmp_path / "out" / "parts").glob("???????.json")))
    assert done < len(plan.parts)

    heard = []
    worker_processes.run_parts(plan.spec, plan.parts, heard.append, 2)
    assert len(list((tmp_path / "out" / "parts").glob("???????.json"))) == len(plan.parts)


def test_a_stopped_worker_is_an_error_that_names_it_and_what_it_did(plan, workers, monkeypatch):
    monkeypatch.setattr(children, "LOOK_S", 0.02)
    stopped = []

    def stop_one(progress) -> None:
        if not stopped:
            stopped.append(workers()[0].pid)
            os.kill(stopped[0], signal.SIGSTOP)

    with pytest.raises(WorkerError) as caught:
        worker_processes.run_parts(plan.spec, plan.parts, stop_one, 2)
    assert re.fullmatch(
        rf"a worker process {stopped[0]} was stopped by a signal \(SIGSTOP\) and did not go on "
        r"within \S+ s, during part \d+ \(.*/in\.jsonl\): what is done is kept; run the "
        "same command again to continue",
        str(caught.value),
    )
    assert workers() == []


CONTINUED = """
import sys, tokmill
from tokmill import children
children.LOOK_S = 0.02
paths, tokenizer, output = sys.argv[1:]
if __name__ == "__main__":
    tokmill.pretrain(paths, tokenizer=tokenizer, output=output, engine="reference", workers=2,
                     part_bytes=600)
"""


def test_a_run_that_is_stopped_with_its_workers_goes_on(tmp_path, write_rows, tokenizer_dir):
    """As Ctrl-Z and `fg` do, longer than one worker may be stopped alone."""
    source, out = write_rows(tmp_path / "in.jsonl", ROWS), tmp_path / "out"
    command = [sys.executable, "-c", CONTINUED, source, tokenizer_dir, out]
    driver = subprocess.Popen(command, start_new_session=True)
    deadline = time.monotonic() + SECONDS
    while not list(out.glob("parts/*")):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.killpg(driver.pid, signal.SIGSTOP)
    with pytest.raises(subprocess.TimeoutExpired):
        driver.wait(1)
    os.killpg(driver.pid, signal.SIGCONT)
    assert driver.wait(SECONDS) == 0
    assert (out / "manifest.json").exists()


def test_all_workers_killed_is_the_same_error(plan, workers):
    def kill_all(progress) -> None:
        for process in workers():
            process.kill()

    with pytest.raises(WorkerError):
        worker_processes.run_parts(plan.spec, plan.parts, kill_all, 2)
    assert workers() == []


def test_what_a_report_raises_stops_the_workers(plan, workers):
    class EnoughError(Exception):
        pass

    def report(progress) -> None:
        raise EnoughError

    with pytest.raises(EnoughError):
        worker_processes.run_parts(plan.spec, plan.parts, report, 2)
    assert workers() == []


def test_what_a_part_raises_ends_the_run_and_leaves_neither_temporaries_nor_workers(
    tmp_path, configure, listener, write_rows, workers
):
    source = write_rows(tmp_path / "in.jsonl", [*ROWS[:50], b"{bad", *ROWS])
    config = configure(
        tmp_path / "out", source, part_bytes=600, on_error="fail", workers=2, block_bytes=100
    )
    with pytest.raises(RecordError, match=r"in\.jsonl:51 .*--on-error=skip"):
        run(config, listener)
    assert workers() == []
    assert temporaries(tmp_path / "out") == []
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_run_larger_than_a_pipe_and_a_worker_that_dies_before_it_reads_it_are_no_hang(plan):
    large = b" " * (1 << 22)
    spec = dataclasses.replace(
        plan.spec, tokenizer=dataclasses.replace(plan.spec.tokenizer, data=large)
    )
    worker_processes.run_parts(spec, plan.parts, lambda progress: None, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_processes, "_MODULE", "tokmill.errors")  # has no `main`
        with pytest.raises(WorkerError):
            worker_processes.run_parts(spec, plan.parts, print, 2)


def test_a_bug_in_a_worker_keeps_its_type_and_its_traceback(plan):
    spec = dataclasses.replace(plan.spec, n_threads="two")
    with pytest.raises(TypeError) as caught:
        worker_processes.run_parts(spec, plan.parts, print, 2)
    assert ", in do_items\n" in caught.value.__notes__[0]


def descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def is_gone(process: psutil.Process) -> bool:
    """Say whether a process has ended; nobody may be there to take the status of an orphan."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_workers_vanish_with_their_parent(tmp_path, start, write_rows, tokenizer_dir):
    source = write_rows(tmp_path / "in.jsonl", ROWS * 20)
    out = tmp_path / "out"
    command = start(
        "pretrain", source, "-t", tokenizer_dir, "-o", out, "--part-bytes", 4000, "--workers", 2,
        "--engine", "reference",
    )  # fmt: skip
    children: list[psutil.Process] = []

    def working() -> bool:
        if len(list(out.glob("parts/*.json"))) < 2:
            return False
        children[:] = descendants(command.process.pid)
        return len(children) >= 2

    assert command.stop_when(working, signal.SIGKILL) == -signal.SIGKILL
    deadline = time.monotonic() + SECONDS
    while not all(map(is_gone, children)):
        assert time.monotonic() < deadline
        psutil.wait_procs(children, timeout=0.05)
