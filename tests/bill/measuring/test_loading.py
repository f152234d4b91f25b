from __future__ import annotations

import sys

import pytest

from tokmill.bill.measuring.loading import measure, measure_interpreter, run_of
from tokmill.bill.measuring.machine import cgroup_memory
from tokmill.errors import StateError, UsageError, WorkerError
from tokmill.settings.training import TrainingSettings

MIB = 1 << 20
SMALL = TrainingSettings(sequence=4, micro_batch=2)


def test_an_interpreter_takes_some_memory_before_it_opens_anything():
    assert 2 * MIB < measure_interpreter(torch=False) < 100 * MIB


def test_what_is_loaded_is_measured(make_dataset):
    directory = make_dataset([300] * (2 * MIB), masks=[[1] * (2 * MIB)])
    training = TrainingSettings(sequence=2048, micro_batch=8, loading="lists")
    found = measure(run_of(directory, training, torch=False, masked=True))
    grown = found.at["loaded"].committed - found.at["started"].committed
    if sys.platform == "linux":
        assert 75 * MIB < grown < 100 * MIB  # 2 Mi integers of 40 bytes, and 8 bytes of each mask
    assert found.peak.committed >= found.at["loaded"].committed
    assert list(found.at) == ["started", "loaded", "half", "read", "ended"]
    assert not found.torch
    assert found.looks_per_s > 0
    assert found.cgroup.keys() == cgroup_memory().keys()


def test_a_run_is_of_all_shards_in_their_order(make_dataset):
    directory = make_dataset([1] * 8, [2] * 8, masks=[[1] * 8, [0] * 8])
    run = run_of(directory, SMALL, torch=False, masked=True)
    assert [path[-22:] for path in run.paths] == [
        "/train-0000000-0000.bin"[1:], "/train-0000001-0000.bin"[1:]
    ]  # fmt: skip
    assert (run.dtype, run.masked, run.sequence, run.most_tokens) == ("<u2", True, 4, 1 << 26)
    assert not run_of(directory, SMALL, torch=False, masked=False).masked


def test_a_pretraining_dataset_has_no_masks_to_load(make_dataset):
    assert not run_of(make_dataset([1] * 8), SMALL, torch=False, masked=True).masked


def test_a_dataset_of_less_than_a_batch_is_refused(make_dataset):
    directory = make_dataset([1] * 7, [2] * 3)
    with pytest.raises(
        UsageError, match=r"4 tokens in whole sequences of 4, expected a batch of 2: set a smaller"
    ):
        run_of(directory, SMALL, torch=False, masked=True)


def test_a_dataset_that_is_not_finished_is_refused(make_dataset):
    directory = make_dataset([1] * 8)
    (directory / "manifest.json").rename(directory / "plan.json")
    with pytest.raises(StateError, match="not finished"):
        measure(run_of(directory, SMALL, torch=False, masked=True))


def test_a_trainer_that_fails_is_one_clear_line(make_dataset):
    directory = make_dataset([1] * 8)
    (directory / "train-0000000-0000.bin").unlink()
    with pytest.raises(WorkerError) as caught:
        measure(run_of(directory, SMALL, torch=False, masked=True))
    assert str(caught.value).startswith(
        "the measured trainer ended with code 1: FileNotFoundError:"
    )
    assert "\n" not in str(caught.value)


def test_workers_of_a_trainer_that_was_killed_do_not_keep_us_waiting(tmp_path, monkeypatch):
    (tmp_path / "dying_trainer.py").write_text(
        "import os, signal, subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("tokmill.bill.measuring.loading.MODULE", "dying_trainer")
    with pytest.raises(WorkerError, match="ended with code -9: killed by the system"):
        measure_interpreter(torch=False)


def test_a_dataset_without_tokens_has_nothing_to_load(make_dataset):
    with pytest.raises(UsageError, match="the dataset has no tokens: there is nothing to load"):
        run_of(make_dataset([]), SMALL, torch=False, masked=True)
