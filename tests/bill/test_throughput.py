"""Throughput by roofline, compared with published trainings."""

from __future__ import annotations

from typing import Any

import pytest

from tokmill import bill
from tokmill.bill.gpus import Gpu, find_gpu
from tokmill.bill.models.load import load_model
from tokmill.bill.throughput import decoding_speed, step_time
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings

MPT = {
    "70b": (80, 8192, 64),
    "30b": (48, 7168, 56),
    "13b": (40, 5120, 40),
    "7b": (32, 4096, 32),
    "3b": (32, 2560, 20),
    "1b": (24, 2048, 16),
    "760m": (24, 1536, 12),
    "125m": (12, 768, 12),
}
"""Layers, hidden size and heads of MosaicML's models."""


def per_gpu(**settings: Any) -> float:
    found = bill.of(throughput="roofline", tokens="10B", **settings).of_model
    assert found is not None
    assert found.compute is not None
    assert found.compute.tokens_per_second is not None
    return found.compute.tokens_per_second / settings["gpus"]


@pytest.mark.parametrize(
    ("model", "sequence", "gpus", "gpu", "micro_batch", "accumulation", "full", "measured"),
    [
        ("70b", 2048, 64, "H100", 8, 4, True, 1039),
        ("30b", 8192, 8, "H100", 1, 21, True, 1384),
        ("30b", 2048, 32, "H100", 14, 3, True, 2308),
        ("13b", 4096, 8, "H100", 10, 3, True, 4717),
        ("13b", 2048, 64, "H100", 2, 1, False, 4800),
        ("7b", 8192, 8, "H100", 8, 2, True, 6935),
        ("3b", 2048, 16, "H100", 10, 3, False, 24142),
        ("1b", 2048, 8, "H100", 14, 1, False, 45455),
        ("760m", 2048, 8, "H100", 24, 2, False, 63147),
        ("70b", 2048, 64, "A100 80GB", 8, 4, True, 410),
        ("30b", 8192, 8, "A100 80GB", 1, 21, True, 574),
        ("30b", 2048, 8, "A100 80GB", 3, 21, True, 916),
        ("13b", 2048, 8, "A100 80GB", 2, 3, False, 2262),
        ("7b", 4096, 8, "A100 80GB", 16, 2, True, 3684),
        ("3b", 4096, 8, "A100 80GB", 5, 6, False, 9457),
        ("1b", 2048, 8, "A100 80GB", 14, 4, False, 20513),
        ("125m", 512, 8, "A100 80GB", 128, 2, False, 165681),
    ],
)
def test_mosaicml_measured_nearly_the_roofline(
    model, sequence, gpus, gpu, micro_batch, accumulation, full, measured
):
    """llm-foundry, scripts/train/benchmarking: tokens per second and GPU, FSDP, bf16 autocast."""
    layers, hidden, heads = MPT[model]
    found = per_gpu(
        family="gpt2", layers=layers, hidden=hidden, heads=heads, ffn=4 * hidden,
        vocabulary=50368, positions=sequence, sequence=sequence, gpu=gpu, gpus=gpus,
        micro_batch=micro_batch, accumulation=accumulation, sharding="fsdp", precision="amp",
        checkpointing="full" if full else "none",
    )  # fmt: skip
    assert 0.79 <= measured / found <= 1.21


def test_llama_65b_is_trained_at_380_tokens_per_second_and_gpu():
    """Touvron et al. 2023: 2,048 A100 with 80 GB, model and sequence parallelism."""
    found = per_gpu(
        family="llama", layers=80, hidden=8192, heads=64, ffn=22016, vocabulary=32000,
        gpu="A100 80GB", gpus=2048, tensor_parallel=8, sequence=2048, accumulation=8,
        sharding="zero-1", checkpointing="selective",
    )  # fmt: skip
    assert found == pytest.approx(380, rel=0.1)


def test_megatron_reaches_most_of_the_roofline_on_384_gpus():
    """Narayanan et al. 2021, table 1: 153 teraFLOP/s per GPU; 8 P FLOP a token; t = 8, p = 12."""
    found = per_gpu(
        family="gpt2", layers=96, hidden=12288, heads=96, ffn=49152, vocabulary=51200,
        positions=2048, sequence=2048, gpu="A100 80GB", gpus=384, tensor_parallel=8,
        pipeline_parallel=12, accumulation=384, checkpointing="full", framework="megatron",
        attention="eager",
    )  # fmt: skip
    assert 0.8 < 153e12 / (8 * 174.6e9) / found < 1.0


TINY = load_model(ModelSettings(name="gpt2"))
A100 = find_gpu("A100 80GB")


def step(gpu: Gpu = A100, flop: float = 1e15, **training: Any) -> Any:
    return step_time(TINY, TrainingSettings(sequence=1024, **training), gpu, flop)


def test_what_is_not_counted_is_a_note():
    assert step(sharding="zero-2", offload="optimizer").notes == (
        "time of offload to the host: not counted",
    )


def test_a_model_without_a_shape_has_no_time_of_activations():
    how: Any = {"gpu": "H100", "tokens": "1B", "accumulation": 64, "throughput": "roofline"}
    of_model = bill.of(parameters="7.5B", **how).of_model
    assert of_model is not None
    assert of_model.compute is not None
    assert of_model.compute.notes == (
        "time of attention and activations: not counted, the layers are not known",
    )
    matrices = 6 * 7.5e9 * 1e9 / (0.55 * 989.4e12)
    assert of_model.compute.seconds is not None
    assert matrices < of_model.compute.seconds < 1.1 * matrices


@pytest.mark.parametrize(
    ("model", "weight_type", "gpu", "measured"),
    [
        # gpt-fast, batch 1 and a prompt of 5 tokens, A100 80GB limited to 330 W.
        ("llama-2-7b", "bf16", "A100 80GB", 104.9),
        ("llama-2-7b", "int8", "A100 80GB", 155.58),
        ("llama-2-70b", "int8", "A100 80GB", 19.13),
        ("llama-2-7b", "bf16", "MI250", 76.33),
    ],
)
def test_decoding_is_bound_by_reading_the_weights(model, weight_type, gpu, measured):
    how: Any = {"context": 64, "weight_type": weight_type}
    found = decoding_speed(
        load_model(ModelSettings(name=model)), bill.inference(model, **how), 1, find_gpu(gpu)
    )
    assert found is not None
    assert 0.5 < measured / found < 1
