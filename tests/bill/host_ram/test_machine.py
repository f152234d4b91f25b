from __future__ import annotations

import pytest

from tokmill.bill.host_ram.machine import Machine
from tokmill.settings.training import TrainingSettings

HERE = Machine(
    memory_bytes=8, available_bytes=4, limit_bytes=6, shm_bytes=2,
    gpus=("NVIDIA A100-SXM4-80GB",) * 4,
)  # fmt: skip


def test_a_run_may_take_memory_or_limit_whichever_is_less():
    assert Machine(memory_bytes=8, limit_bytes=5).usable_bytes == 5
    assert Machine(memory_bytes=8, limit_bytes=50).usable_bytes == 8
    assert Machine(memory_bytes=8).usable_bytes == 8
    assert Machine(limit_bytes=5).usable_bytes == 5
    assert Machine().usable_bytes == 0


@pytest.mark.parametrize(
    "training",
    [
        TrainingSettings(),
        TrainingSettings(gpu="A100-80"),
        TrainingSettings(gpus=4),
        TrainingSettings(gpu="a100 80gb", gpus=8, gpus_per_node=4),
    ],
)
def test_a_training_on_gpus_that_this_machine_has_is_judged_here(training: TrainingSettings):
    assert HERE.for_training(training) == HERE


@pytest.mark.parametrize(
    "training",
    [TrainingSettings(gpu="H100"), TrainingSettings(gpu="80GiB"), TrainingSettings(gpus=8)],
)
def test_a_training_on_other_gpus_is_judged_on_no_machine(training: TrainingSettings):
    found = HERE.for_training(training)
    assert (found.usable_bytes, found.available_bytes, found.shm_bytes) == (0, 0, 0)


def test_a_given_host_ram_is_that_of_another_machine():
    found = HERE.for_training(TrainingSettings(host_ram=512 << 30))
    assert (found.usable_bytes, found.shm_bytes, found.name) == (512 << 30, 0, "a node")
