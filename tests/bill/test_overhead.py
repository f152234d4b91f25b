"""Fragmentation takes what a GPU has left, and keeps no run from fitting that needs less."""

from __future__ import annotations

import pytest

from tokmill.bill.gpus import find_gpu
from tokmill.bill.models.load import load_model
from tokmill.bill.overhead import FRAGMENTATION, NCCL, SHARES
from tokmill.bill.training_bill import training_bill
from tokmill.settings.training import ModelSettings, TrainingSettings

GIB = 1 << 30
QLORA = TrainingSettings(
    adapter="qlora", adapter_rank=64, precision="pure-16", checkpointing="full", sharding="fsdp",
    gpus=2, sequence=2048, transformers="4",
)  # fmt: skip


def bill_of(name: str, **settings: object):
    changed = {each: getattr(QLORA, each) for each in QLORA.__slots__} | settings
    return training_bill(load_model(ModelSettings(name=name)), TrainingSettings(**changed)).peak


def amount(name: str, bill) -> int:
    return sum(line.n_bytes for line in bill.lines if line.name == name)


def fragmentation(bill) -> int:
    return amount(FRAGMENTATION.name, bill)


@pytest.mark.parametrize("gpu", ["A100-40", "A6000", "A100-80"])
def test_fragmentation_takes_no_more_than_a_gpu_has_left(gpu: str) -> None:
    alone, on_gpu = bill_of("llama-2-70b"), bill_of("llama-2-70b", gpu=gpu)
    tensors = alone.n_bytes - fragmentation(alone)
    assert fragmentation(alone) > 0.15 * tensors
    assert on_gpu.n_bytes <= max(find_gpu(gpu).memory_bytes, 1.07 * tensors)
    assert fragmentation(on_gpu) <= fragmentation(alone)


def test_six_percent_of_the_tensors_stay_when_memory_is_short() -> None:
    bill = bill_of("llama-2-70b", gpu="24GiB")
    tensors = bill.n_bytes - fragmentation(bill) - amount(NCCL.name, bill)
    assert fragmentation(bill) == pytest.approx(0.06 * tensors, rel=0.02)


@pytest.mark.parametrize(
    ("gpu", "gpus", "micro_batch"),
    [("A100-40", 2, 1), ("3090", 4, 1), ("A6000", 2, 2), ("A6000", 4, 3), ("H100", 4, 8)],
)
def test_training_of_70b_that_ran_is_told_to_fit(gpu: str, gpus: int, micro_batch: int) -> None:
    bill = bill_of("llama-2-70b", gpu=gpu, gpus=gpus, micro_batch=micro_batch)
    assert bill.n_bytes <= find_gpu(gpu).memory_bytes


def test_without_a_gpu_fragmentation_is_the_share_of_its_kind() -> None:
    bill = bill_of("llama-2-7b")
    line = next(line for line in bill.lines if line.name == FRAGMENTATION.name)
    assert line.symbols["share"] == SHARES["fsdp, adapters"]


@pytest.mark.parametrize(
    ("settings", "mib"),
    [
        ({"gpus": 1, "sharding": "ddp"}, 0),
        ({"gpus": 2}, 544),
        ({"gpus": 4}, 688),
        ({"gpus": 8, "tensor_parallel": 2, "adapter": "none", "checkpointing": "none"}, 2 * 688),
    ],
)
def test_each_group_of_gpus_has_buffers_of_nccl(settings: dict[str, object], mib: int) -> None:
    assert amount(NCCL.name, bill_of("llama-2-7b", **settings)) == mib << 20
