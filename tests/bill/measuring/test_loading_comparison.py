from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from tokmill.bill.dataset_size import DatasetSize, dataset_size
from tokmill.bill.formula import Bill, Formula
from tokmill.bill.host_ram.machine import TORCH_BYTES, Machine
from tokmill.bill.measuring.loading import (
    Comparison,
    Measured,
    compare_loading,
    measure_interpreter,
    predict,
    run_of,
    small_ids,
)
from tokmill.bill.measuring.machine import this_machine
from tokmill.bill.measuring.process_tree import Usage
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
        loading="int64", loader_workers=2, start_method="spawn", sequence=2048, micro_batch=8
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


def test_a_prediction_is_of_one_process_without_what_is_not_measured(make_dataset):
    directory = make_dataset([500] * 8, masks=[[1] * 8])
    training = TrainingSettings(
        gpus=8, loading="lists", sequence=4, pin_memory=True, loader_workers=1
    )
    size = replace(dataset_size(read_manifest(directory)), mask=False)
    found = predict(training, size, Machine(interpreter_bytes=MIB))
    assert [line.n_bytes for line in found.lines] == [
        MIB, 12 * MIB, 8 * 40, 8 * 32, 16 * 4, 3 * 16 * 4
    ]  # fmt: skip


def test_the_share_of_small_ids_is_counted_over_all_shards(make_dataset):
    directory = make_dataset([256] * 30 + [257] * 10, [257] * 40)
    manifest, training = read_manifest(directory), TrainingSettings(sequence=4)
    run = run_of(directory, manifest, training, torch=False, masked=False)
    assert small_ids(run) == 0.375


@pytest.mark.parametrize(
    ("predicted", "holds"), [(100, True), (100 + 37, True), (100 + 38, False), (62, False)]
)
def test_a_prediction_holds_within_five_percent_and_32_mib(predicted: int, holds: bool):
    line = Formula("all", "x", "").line({"x": predicted * MIB})
    measured = Measured({}, Usage(anonymous=60 * MIB, shared=40 * MIB), 200.0)
    size = DatasetSize("pretrain", 0, 0, 2)
    found = Comparison(TrainingSettings(), size, Bill("", (line,)), measured)
    assert found.holds == holds
    assert found.difference == (predicted - 100) * MIB
