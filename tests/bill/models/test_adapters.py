"""Matrices that adapters adapt. tests/oracles/test_adapters.py compares counts with peft."""

from __future__ import annotations

import pytest

from tokmill.bill.models.adapters import adapter_tensors
from tokmill.bill.models.load import load_model
from tokmill.bill.models.model import Model
from tokmill.errors import UsageError
from tokmill.settings.training import ModelSettings, TrainingSettings

LLAMA_LINEAR = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"


def named(name: str) -> Model:
    return load_model(ModelSettings(name=name))


def trained(model: Model, rank: int, targets: str, adapter: str = "lora") -> int:
    training = TrainingSettings(adapter=adapter, adapter_rank=rank, adapter_targets=targets)
    return sum(tensor.count for tensor in adapter_tensors(model, training))


@pytest.mark.parametrize(
    ("rank", "targets", "expected"),
    [
        (8, "q_proj,v_proj", 4_194_304),
        (64, "q_proj,k_proj,v_proj,o_proj", 67_108_864),
        (16, "all-linear", 39_976_960),
        (16, LLAMA_LINEAR, 39_976_960),
        (16, f"{LLAMA_LINEAR}, lm_head", 40_554_496),
    ],
)
def test_lora_on_llama_2_7b_trains_the_published_counts(
    rank: int, targets: str, expected: int
) -> None:
    assert trained(named("llama-2-7b"), rank, targets) == expected


@pytest.mark.parametrize(
    ("name", "targets", "why"),
    [
        ("llama-2-7b", "q_proj,query", "ends with 'query'; expected all-linear or some of down_"),
        ("llama-2-7b", "", "ends with ''"),
        ("gpt2", "lm_head", "the head is the embedding"),
        ("mixtral-8x7b", "down_proj", "gate, k_proj, lm_head, o_proj, q_proj, v_proj, w1, w2, w3"),
        ("gpt-oss-20b", "gate_up_proj", "experts are one stacked tensor and cannot be adapted"),
    ],
)
def test_a_target_that_names_no_matrix_is_refused(name: str, targets: str, why: str) -> None:
    with pytest.raises(UsageError, match=f"adapter_targets: .*{why}"):
        trained(named(name), 8, targets)


def test_stacked_experts_are_adapted_under_the_names_that_they_had() -> None:
    model = named("mixtral-8x7b")
    up = 32 * 8 * (2 * 4) * (4096 + 2 * 14_336)  # gate and up are one matrix of twice the rank
    down = 32 * 8 * 4 * (14_336 + 4096)
    router = 32 * 4 * (4096 + 8)
    assert trained(model, 4, "w1,w3") == up
    assert trained(model, 4, "w2") == down
    attention = trained(model, 4, "q_proj,k_proj,v_proj,o_proj")
    assert trained(model, 4, "all-linear") == attention + up + down + router


def test_half_of_a_fused_tensor_is_refused() -> None:
    with pytest.raises(UsageError, match=r"w1 and w3 are one .*, found only w3; name both"):
        trained(named("mixtral-8x7b"), 4, "w3,q_proj")


def test_dora_adapts_no_stacked_experts() -> None:
    with pytest.raises(UsageError, match="adapter: dora cannot adapt the stacked experts"):
        trained(named("mixtral-8x7b"), 4, "all-linear", "dora")
    assert trained(named("mixtral-8x7b"), 4, "q_proj", "dora") == 32 * (4 * 2 * 4096 + 4096)
