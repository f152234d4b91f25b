from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from tokmill.bill.host_ram.machine import TORCH_BYTES, Machine
from tokmill.bill.measuring.loading import (
    compare_loading,
    measure_interpreter,
)
from tokmill.bill.measuring.machine import this_machine
from tokmill.dataset.reader import read_manifest
from tokmill.settings.training import TrainingSettings

MIB = 1 << 20
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only RSS is known")


def machine() -> Machine:
    bare = measure_interpreter(torch=False)
    return Machine(available_bytes=this_machine().available_bytes, interpreter_bytes=bare)


@LINUX
@pytest.mark.parametrize(
    ("strategy", "workers", "start", "masked"),
    [
        ("int64", 0, "fork", True),
        ("lists", 2, "fork", False),
        ("lists", 2, "spawn", False),
    ],
)
def test_predictions_hold_with_numpy_alone(
    make_dataset, strategy: str, workers: int, start: str, masked: bool
):
    part = [7, 300, 8000, 9] * (MIB // 2)
    directory = make_dataset(part, part, masks=[[1, 0, 1, 1] * (MIB // 2)] * 2)
    training = TrainingSettings(
        loading=strategy, loader_workers=workers, start_method=start, sequence=2048, micro_batch=8
    )
    manifest = read_manifest(directory)
    found = compare_loading(directory, manifest, training, machine(), torch=False, masked=masked)
    assert found.holds, (found.predicted.n_bytes / MIB, found.measured)
    assert found.size.mask == masked


@LINUX
def test_predictions_hold_with_torch(make_dataset):
    torch = pytest.importorskip("torch", reason="torch is not installed: make oracles")
    part = [7, 300, 8000, 9] * (MIB // 4)
    directory = make_dataset(part, part, part, part, masks=[[1, 0, 1, 1] * (MIB // 4)] * 4)
    training = TrainingSettings(
        loading="int64", loader_workers=1, start_method="spawn", sequence=2048, micro_batch=8
    )
    bare = measure_interpreter(torch=True)
    of_build = TORCH_BYTES if torch.version.cuda else 144 * MIB
    assert bare == pytest.approx(of_build, rel=0.25)
    one = replace(machine(), interpreter_bytes=bare)
    manifest = read_manifest(directory)
    found = compare_loading(directory, manifest, training, one, torch=True, masked=True)
    assert found.holds, (found.predicted.n_bytes / MIB, found.measured)


def test_what_takes_too_much_memory_is_not_run(make_dataset):
    directory = make_dataset([1] * 8)
    training = TrainingSettings(sequence=4)
    poor = Machine(available_bytes=MIB)
    manifest = read_manifest(directory)
    found = compare_loading(directory, manifest, training, poor, torch=False, masked=True)
    assert found.measured is None
    assert found.skipped == "too little memory is free to measure it"
    assert not found.holds
