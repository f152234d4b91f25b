from dataclasses import replace
from typing import Any

import pytest

from tokmill.bill.bill_settings import BillSettings
from tokmill.bill.compute import Compute, compute, operations_per_token
from tokmill.bill.full_bill import full_bill
from tokmill.bill.gpus import Gpu, find_gpu
from tokmill.bill.host_ram.machine import Machine
from tokmill.bill.inputs import complete_inputs
from tokmill.bill.models.load import load_model
from tokmill.bill.models.model import Attention, Block, Model, Tensor
from tokmill.bill.on_disk import DatasetSize
from tokmill.settings.training import InferenceSettings, ModelSettings, TrainingSettings

LAYERS = (0, 1)
ATTENTION = Attention(heads=2, kv_heads=2, head_dim=3)
HEAD = Tensor("head", (10, 4), "head", "linear", "vocabulary", 4, 10)
UP = Tensor("{}.up", (8, 4), "mlp", "linear", "columns", 4, 8, LAYERS)


def a_model(*tensors, tied=False, experts=None, attention=ATTENTION):
    blocks = (Block("latent" if attention.kv_rank else "attention", LAYERS, attention.sizes),)
    return Model(
        "tiny", "llama", 2, 4, 8, 10, 64, tied, "silu", attention, tensors, experts, blocks=blocks
    )


def a_dataset(tokens=1000, documents=10, **more):
    return DatasetSize("pretrain", tokens, documents, 2, **more)


def operations(model, sequence=0, **training):
    return operations_per_token(model, TrainingSettings(**training), sequence)


def test_gpt_3_takes_what_its_paper_says():
    """Brown et al. 2020, table D.1: 3.14e23 for 300e9 tokens and 174.6e9 parameters."""
    model = load_model(
        ModelSettings(family="gpt2", layers=96, hidden=12288, heads=96, ffn=49152,
                      vocabulary=50257, positions=2048)
    )  # fmt: skip
    found, _ = operations(model, 0)
    assert found * 300e9 == pytest.approx(3.14e23, rel=0.01)


def test_full_checkpointing_runs_the_layers_forward_again():
    model = a_model(UP, HEAD)
    assert operations(model, 100, checkpointing="full")[1] == 2 * 64 + 4 * 2 * 2 * 3 * 100
    assert operations(model, 100, checkpointing="selective")[1] == 4 * 2 * 2 * 3 * 100


def test_steps_are_whole_batches_over_all_gpus():
    training = TrainingSettings(
        micro_batch=3, accumulation=2, gpus=8, tensor_parallel=2, epochs=2.5
    )
    found = compute(a_model(UP), replace(training, sequence=16), a_dataset(24 * 10 * 16 + 9))
    assert (found.step_sequences, found.step_tokens) == (3 * 2 * 4, 24 * 16)
    assert (found.steps_per_epoch, found.steps) == (10, 25)


def test_chats_that_are_not_packed_are_a_sequence_each():
    chats = DatasetSize("sft", 10_000, 50, 2, mask=True)
    packed = DatasetSize("sft", 10_000, 50, 2, mask=True, capacity=100)
    training = TrainingSettings(micro_batch=10)
    assert compute(a_model(UP), replace(training, sequence=100), chats).steps_per_epoch == 5
    assert compute(a_model(UP), replace(training, sequence=100), packed).steps_per_epoch == 10
    rows = replace(packed, train_rows=120)  # best fit leaves room at the ends of rows
    assert compute(a_model(UP), replace(training, sequence=100), rows).steps_per_epoch == 12
    assert compute(a_model(UP), replace(training, sequence=50), rows).steps_per_epoch == 20


def test_a_dataset_smaller_than_a_step_is_said():
    found = compute(a_model(UP), TrainingSettings(micro_batch=99, sequence=100), a_dataset(1000))
    assert found.steps_per_epoch == 0
    assert "the dataset is smaller than a step of 99 sequences" in found.notes
    one = compute(a_model(UP), TrainingSettings(sequence=2000), a_dataset(1000))
    assert "the dataset is smaller than a step of 1 sequence" in one.notes


@pytest.mark.parametrize(
    ("gpu", "precision", "why"),
    [
        (None, "amp", "the GPU is not known"),
        (Gpu("24GiB", 24 << 30), "amp", "the GPU is not known"),
        (Gpu("old", 24 << 30, flops=1e12), "fp32", "the GPU is not known"),
    ],
)
def test_no_time_is_given_without_a_peak_that_applies(gpu, precision, why):
    found = compute(
        a_model(UP), TrainingSettings(precision=precision, sequence=10), a_dataset(), gpu
    )
    assert found.seconds is None
    assert why in found.notes[0]


A100 = {"gpu": "A100 80GB", "price_per_hour": 2.0}
LLAMA_65B = {"family": "llama", "layers": 80, "hidden": 8192, "heads": 64, "ffn": 22016,
             "vocabulary": 32000}  # fmt: skip
GPT3 = {"family": "gpt2", "layers": 96, "hidden": 12288, "heads": 96, "ffn": 49152,
        "vocabulary": 51200, "positions": 2048}  # fmt: skip
BLOOM = {"family": "bloom", "layers": 70, "hidden": 14336, "heads": 112, "vocabulary": 250880}


@pytest.mark.parametrize(
    ("model", "training", "days", "error"),
    [
        # Touvron et al. 2023: 380 tokens a second and GPU (6 N of them), 2048 A100, 21 days.
        (LLAMA_65B, {"gpus": 2048, "sequence": 2048, "tokens": 1.4e12,
                     "mfu": 380 * 6 * 65.2e9 / 312e12}, 21, 0.04),
        # Narayanan et al. 2021, section 5.1: 1024 A100 at 140 teraFLOP/s, 300B tokens, 34 days.
        (GPT3, {"gpus": 1024, "sequence": 2048, "tokens": 300e9, "mfu": 140 / 312,
                "checkpointing": "full"}, 34, 0.03),
        # Le Scao et al. 2022: 384 A100 at 150 teraFLOP/s, 366B tokens, about 3.5 months.
        (BLOOM, {"gpus": 384, "sequence": 2048, "tokens": 366e9, "mfu": 150 / 312,
                 "checkpointing": "full"}, 106, 0.04),
    ],
    ids=["LLaMA-65B", "GPT-3", "BLOOM"],
)  # fmt: skip
def test_published_trainings_take_the_days_that_were_published(model, training, days, error):
    found = of_settings(model, training)
    assert found.seconds == pytest.approx(days * 86400, rel=error)
    assert found.cost == pytest.approx(days * 24 * training["gpus"] * 2, rel=error)


def of_settings(model: dict[str, Any], training: dict[str, Any]) -> Compute:
    """Return the computation of a training that has no dataset yet."""
    tokens = round(training["tokens"])
    asked = TrainingSettings(**{**A100, **training, "tokens": tokens})
    settings = BillSettings(ModelSettings(**model), asked, InferenceSettings())
    of_model = full_bill(complete_inputs(settings, None, Machine())).of_model
    assert of_model is not None
    assert of_model.compute is not None
    assert of_model.compute.trained_tokens == tokens
    return of_model.compute


def test_fp32_is_as_slow_as_its_own_peak():
    fp32, amp = (
        compute(a_model(UP), TrainingSettings(precision=name, sequence=10), a_dataset(), T4)
        for name in ("fp32", "amp")
    )
    assert fp32.seconds is not None
    assert amp.seconds is not None
    assert fp32.seconds / amp.seconds == pytest.approx(65 / 8.1)


T4 = find_gpu("T4")
