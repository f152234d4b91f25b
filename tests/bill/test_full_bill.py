"""The complete bill: of a model, a dataset, or both."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from tokmill.bill.bill_settings import BillSettings
from tokmill.bill.dataset_size import DatasetSize
from tokmill.bill.formula import Bill
from tokmill.bill.full_bill import FullBill, check, full_bill
from tokmill.bill.host_ram.machine import Machine
from tokmill.bill.inputs import complete_inputs
from tokmill.bill.on_disk import OnDisk, predicted_disk
from tokmill.errors import UsageError
from tokmill.settings.inference import InferenceSettings
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings

NUMBERS = ModelSettings(family="llama", layers=2, hidden=64, heads=4, ffn=128, tied="yes")
SIZE = DatasetSize(
    "sft", 10_000, 20, 2, mask=True, vocabulary=300, capacity=512, length_histogram=(0,) * 8 + (20,)
)
DISK = OnDisk("out", SIZE, predicted_disk(SIZE, slices=1), 10**9)


def made(model: ModelSettings = NUMBERS, disk: OnDisk | None = DISK, **training: Any) -> FullBill:
    settings = BillSettings(model, TrainingSettings(**training), InferenceSettings(), ("note",))
    return full_bill(complete_inputs(settings, disk, Machine()))


def test_a_model_by_numbers_has_the_vocabulary_of_the_dataset():
    found = made().of_model
    assert found is not None
    layer = 4 * 64 * 64 + 3 * 64 * 128 + 2 * 64
    assert found.model.parameters == 300 * 64 + 2 * layer + 64


def test_a_dataset_with_more_ids_than_the_model_is_noted():
    small = ModelSettings(**{**asdict(NUMBERS), "vocabulary": 299})
    assert made(small).settings.notes == (
        "note",
        "vocabulary: the dataset's tokenizer has 300 ids, the model's embedding 299: "
        "resize the embedding to train on this dataset",
    )
    assert made().settings.notes == ("note",)


def test_sequences_are_as_long_as_packed_rows_unless_the_settings_say():
    assert made().settings.training.sequence == 512
    assert made(sequence=128).settings.training.sequence == 128
    assert made(ModelSettings(name="gpt2"), None).settings.training.sequence == 1024


def test_without_a_model_there_is_disk_and_host_alone():
    found = made(ModelSettings())
    assert found.of_model is None
    assert found.disk is DISK
    assert found.additions
    assert isinstance(found.host.peak, Bill)


def test_without_a_dataset_nothing_is_said_of_one():
    found = made(ModelSettings(name="gpt2"), None, gpu="T4")
    assert found.additions == ()
    assert found.of_model is not None
    assert found.of_model.compute is None
    assert found.of_model.advice is not None


def test_without_a_gpu_there_is_no_advice():
    found = made().of_model
    assert found is not None
    assert (found.gpu, found.advice) == (None, None)
    assert found.compute is not None
    assert found.compute.tokens == 10_000


@pytest.mark.parametrize(
    "found",
    [made(gpu="T4"), made(), made(ModelSettings()), made(ModelSettings(name="gpt2"), None)],
    ids=["all", "no GPU", "no model", "no dataset"],
)
def test_json_is_plain_and_has_the_same_keys_whatever_is_there(found: FullBill):
    plain = found.as_json()
    assert json.dumps(plain)
    assert list(plain) == [
        "schema", "settings", "notes", "not_read", "model", "gpu", "training", "inference",
        "advice", "inference_advice", "compute", "host", "disk",
    ]  # fmt: skip
    assert list(plain["disk"]) == [
        "directory", "free_bytes", "dataset", "found", "additions", "checkpoints"
    ]  # fmt: skip
    assert plain["notes"][0] == "note"


def test_a_dataset_may_be_a_number_of_bytes_or_tokens():
    found = made(ModelSettings(name="gpt2"), None, dataset_bytes=10**9, loader_workers=2)
    assert found.disk is not None
    assert found.disk.bill.lines[0].n_bytes == 10**9
    assert found.host.page_cache.n_bytes >= 10**9
    assert found.as_json()["disk"]["free_bytes"] is None
    assert found.of_model is not None
    assert found.of_model.compute is not None
    assert found.of_model.compute.tokens == 10**9 // 2


def test_the_verdict_is_against_the_machine_of_the_training():
    here = Machine(memory_bytes=1 << 40, available_bytes=1 << 40, shm_bytes=1 << 40)
    training = TrainingSettings(loading="read", dataset_bytes=64 << 30, host_ram=32 << 30)
    settings = BillSettings(ModelSettings(), training, InferenceSettings())
    assert full_bill(complete_inputs(settings, None, here)).host.verdict.said == "does not fit"
    settings = replace(settings, training=replace(training, host_ram=0))
    assert full_bill(complete_inputs(settings, None, here)).host.verdict.said == "fits"


def test_tokens_to_train_on_are_epochs_of_the_dataset():
    found = made(tokens=25_000)
    assert found.settings.training.epochs == 2.5
    assert found.of_model is not None
    assert found.of_model.compute is not None
    assert found.of_model.compute.trained_tokens == 25_000


def test_a_run_is_checked_before_its_dataset_and_vocabulary_are_there():
    check(BillSettings(NUMBERS, TrainingSettings(gpu="T4"), InferenceSettings()))
    check(BillSettings(ModelSettings(), TrainingSettings(), InferenceSettings()))


@pytest.mark.parametrize(
    ("model", "training", "expected"),
    [
        (ModelSettings(), {"gpu": "Voodoo"}, "gpu: 'Voodoo' is not known"),
        (ModelSettings(family="llama", layers=2), {}, "--hidden"),
        (NUMBERS, {"gpus": 3, "tensor_parallel": 3}, "3"),
        (NUMBERS, {"offload": "optimizer", "gpus": 2}, "offload"),
    ],
)
def test_what_would_fail_at_the_end_fails_before_the_run(model, training, expected):
    with pytest.raises(UsageError, match=expected):
        check(BillSettings(model, TrainingSettings(**training), InferenceSettings()))
