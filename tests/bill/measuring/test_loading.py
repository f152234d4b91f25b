from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tokmill.bill.measuring.child import Run
from tokmill.bill.measuring.loading import measure, measure_interpreter, run_of
from tokmill.dataset.reader import read_manifest
from tokmill.errors import UsageError, WorkerError
from tokmill.settings.training import TrainingSettings

MIB = 1 << 20
SMALL = TrainingSettings(sequence=4, micro_batch=2)


def plain_run(directory: Path, training: TrainingSettings = SMALL, *, masked: bool = True) -> Run:
    manifest = read_manifest(directory)
    return run_of(directory, manifest, training, torch=False, masked=masked)


def test_what_is_loaded_is_measured(make_dataset):
    directory = make_dataset([300] * (2 * MIB), masks=[[1] * (2 * MIB)])
    training = TrainingSettings(sequence=2048, micro_batch=8, loading="lists")
    found = measure(plain_run(directory, training))
    grown = found.at["loaded"].committed - found.at["started"].committed
    if sys.platform == "linux":
        assert 75 * MIB < grown < 100 * MIB  # 2 Mi integers of 40 bytes, and 8 bytes of each mask
    assert found.peak.committed >= found.at["loaded"].committed
    assert list(found.at) == ["started", "loaded", "half", "read", "ended"]
    assert found.looks_per_s > 0


def test_a_dataset_of_less_than_a_batch_is_refused(make_dataset):
    directory = make_dataset([1] * 7, [2] * 3)
    with pytest.raises(
        UsageError, match=r"4 tokens in whole sequences of 4, expected a batch of 2: set a smaller"
    ):
        plain_run(directory)


def test_a_trainer_that_fails_is_one_clear_line(make_dataset):
    directory = make_dataset([1] * 8)
    (directory / "train-0000000-0000.bin").unlink()
    with pytest.raises(WorkerError) as caught:
        measure(plain_run(directory))
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


def test_a_trainer_that_was_killed_before_it_was_told_to_go_on_is_one_clear_line(
    tmp_path, monkeypatch
):
    (tmp_path / "dying_trainer.py").write_text(
        "import os, signal, sys\n"
        "sys.stdin.readline()\n"
        "os.close(0)\n"  # what we write now finds no reader
        "print('started', flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("tokmill.bill.measuring.loading.MODULE", "dying_trainer")
    with pytest.raises(WorkerError, match="ended with code -9: killed by the system"):
        measure_interpreter(torch=False)


def test_a_dataset_without_tokens_has_nothing_to_load(make_dataset):
    with pytest.raises(UsageError, match="the dataset has no tokens: there is nothing to load"):
        plain_run(make_dataset([]))
