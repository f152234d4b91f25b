"""The complete bill of a model, a dataset, or both: settings that follow from others, and notes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tokmill.bill.bill_settings import BillSettings, complete_training
from tokmill.bill.full_bill import FullBill, check, full_bill
from tokmill.bill.gpus import find_gpu
from tokmill.bill.host_ram.machine import Machine
from tokmill.bill.inputs import complete_inputs, model_notes, stored_notes, training_notes
from tokmill.bill.models.load import load_model, model_from_config
from tokmill.bill.on_disk import DatasetSize, OnDisk, predicted_disk
from tokmill.errors import UsageError
from tokmill.settings.training import InferenceSettings, ModelSettings, TrainingSettings

NUMBERS = ModelSettings(family="llama", layers=2, hidden=64, heads=4, ffn=128, tied="yes")
SIZE = DatasetSize(
    "sft", 10_000, 20, 2, mask=True, vocabulary=300, capacity=512, length_histogram=(0,) * 8 + (20,)
)
DISK = OnDisk("out", SIZE, predicted_disk(SIZE, slices=1), 10**9)


def made(model: ModelSettings = NUMBERS, disk: OnDisk | None = DISK, **training: Any) -> FullBill:
    settings = BillSettings(model, TrainingSettings(**training), InferenceSettings(), ("note",))
    return full_bill(complete_inputs(settings, disk, Machine()))


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


def notes(gpu: str = "", **settings: Any) -> list[str]:
    return list(training_notes(TrainingSettings(**settings), find_gpu(gpu) if gpu else None))


def test_a_pipeline_with_one_micro_batch_is_serial() -> None:
    assert notes(gpus=4, pipeline_parallel=4) == [
        "pipeline_parallel: with 1 micro batch the 4 stages work one after the other; "
        "set accumulation to 4 or more"
    ]
    assert notes(gpus=4, pipeline_parallel=4, accumulation=2) == []


@pytest.mark.parametrize("gpu", ["V100", "T4", "2080 Ti"])
def test_a_gpu_without_bf16_is_named_with_what_to_use(gpu: str) -> None:
    (note,) = notes(gpu)
    assert note.endswith("has no bf16; use fp16 (the memory is the same)")
    (pure,) = notes(gpu, precision="pure-16")
    assert "use --precision=amp with fp16, or fp32" in pure
    assert notes(gpu, precision="fp32") == notes("A100-80") == notes("24GiB") == []


def test_lengths_over_the_positions_and_ids_over_the_embedding_are_named() -> None:
    model = load_model(ModelSettings(name="gpt2"))
    assert list(model_notes(model, sequence=1024, context=1024, ids=50_257)) == []
    long, ids = model_notes(model, sequence=2048, context=0, ids=50_258)
    assert long == "sequence: 2,048 tokens are more than the model's 1,024 positions"
    assert ids.startswith("vocabulary: the dataset's tokenizer has 50,258 ids, the model's")


@pytest.mark.parametrize(
    ("quantization", "adapter", "said"),
    [
        ({"quant_method": "awq"}, "none", "weights: AWQ, 4 bit, groups of 128 (quantization_conf"),
        ({"quant_method": "awq"}, "lora", ""),
        ({"quant_method": "fp8"}, "none", ""),
        (None, "none", ""),
    ],
)
def test_integers_of_files_cannot_be_trained(
    quantization: dict[str, str] | None, adapter: str, said: str
) -> None:
    config = {"model_type": "gpt2", "n_layer": 1, "n_embd": 64, "n_head": 2}
    model = model_from_config({**config, "quantization_config": quantization})
    found = list(stored_notes(model, TrainingSettings(adapter=adapter)))
    assert len(found) == bool(said)
    assert all(note.startswith(said) and "billed as amp" in note for note in found)


CONFIG = {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 100}
TINY = model_from_config({**CONFIG, "n_positions": 77})
PACKED = DatasetSize("sft", 1000, 10, 2, capacity=33, val_tokens=200)


def test_completed_settings_stay_as_they_are():
    once = complete_training(TrainingSettings(gpus=8, gpus_per_node=4, tokens=1600), TINY, PACKED)
    assert complete_training(once, TINY, PACKED) == once


def test_host_ram_without_its_unit_is_refused():
    with pytest.raises(UsageError, match=r"^host_ram: expected the memory of .*, found 64 B$"):
        complete_training(TrainingSettings(host_ram=64), TINY, None)
