"""Host RAM with a DataLoader of torch: predicted against measured."""

from __future__ import annotations

import sys

import pytest

from bench.host_ram import make_dataset
from tokmill.bill.host_ram.machine import MIB, TORCH_BYTES, Machine
from tokmill.bill.measuring.loading import compare_loading, measure_interpreter
from tokmill.bill.measuring.machine import this_machine
from tokmill.dataset.reader import read_manifest
from tokmill.settings.training import TrainingSettings

torch = pytest.importorskip("torch")
if sys.platform != "linux":
    pytest.skip("elsewhere only RSS is known", allow_module_level=True)


@pytest.fixture(scope="module")
def machine() -> Machine:
    bare = measure_interpreter(torch=True)
    return Machine(available_bytes=this_machine().available_bytes, interpreter_bytes=bare)


@pytest.mark.parametrize(
    ("loading", "workers", "start"),
    [("lists", 2, "fork"), ("int64", 2, "spawn")],
)
def test_predictions_hold_with_torch(
    tmp_path, machine: Machine, loading: str, workers: int, start: str
):
    make_dataset(tmp_path, 4 << 20)
    training = TrainingSettings(
        loading=loading, loader_workers=workers, start_method=start, sequence=2048, micro_batch=8
    )
    manifest = read_manifest(tmp_path)
    found = compare_loading(tmp_path, manifest, training, machine, torch=True, masked=True)
    assert found.holds, (found.predicted.n_bytes, found.measured)


def test_torch_takes_what_the_constant_of_its_build_says(machine: Machine):
    constant = TORCH_BYTES if torch.version.cuda else 144 * MIB
    assert machine.interpreter_bytes == pytest.approx(constant, rel=0.25)
