"""Peaks of real optimizers' steps are compared with ours in tests/oracles."""

from __future__ import annotations

from typing import Any

import pytest

from tokmill.bill.models.load import load_model
from tokmill.bill.states.optimizer_step import step_line
from tokmill.bill.states.parallel import RankTensor, rank_tensors
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings

GPT2 = 124_439_808
EMBEDDING = 50_257 * 768
VECTORS = 12 * (4 * 768 + 2304 + 768 + 3072 + 768) + 2 * 768


def of_gpt2(**settings: Any) -> tuple[tuple[RankTensor, ...], TrainingSettings]:
    training = TrainingSettings(**settings)
    return rank_tensors(load_model(ModelSettings(name="gpt2")), training), training


def taken(**settings: Any) -> int:
    return step_line(*of_gpt2(**settings), 1).n_bytes


def test_gpt2_in_fp32_takes_20_bytes_a_parameter_at_a_foreach_step() -> None:
    assert 16 * GPT2 + taken(precision="fp32") == 20 * GPT2


def test_gpt2_in_fp32_takes_18_48_bytes_a_parameter_at_a_for_loop_step() -> None:
    peak = 16 * GPT2 + taken(precision="fp32", optimizer_step="for-loop")
    assert round(peak / GPT2, 2) == 18.48


@pytest.mark.parametrize(
    ("settings", "n_bytes"),
    [
        ({"optimizer_step": "fused"}, 0),
        ({"precision": "pure-16"}, 2 * GPT2),
        ({"precision": "bf16-states"}, 2 * GPT2),
        ({"optimizer": "sgd"}, 0),
        ({"optimizer": "momentum"}, 0),
        ({"optimizer": "adamw-8bit"}, 0),
        ({"optimizer": "lion"}, 2 * 4 * EMBEDDING),
        ({"optimizer": "lion", "optimizer_step": "fused"}, 0),
        ({"optimizer": "adafactor"}, 2 * 4 * EMBEDDING),
        ({"optimizer": "adafactor", "precision": "pure-16"}, 4 * 4 * EMBEDDING),
        ({"optimizer": "adafactor", "precision": "mixed-16"}, 2 * 4 * EMBEDDING),
        ({"optimizer": "muon"}, 4 * (EMBEDDING + 1024 * 768 + VECTORS)),
        ({"optimizer": "muon", "optimizer_step": "fused"}, 8 * 768 * 3072 + 4 * 768**2),
    ],
)
def test_a_step_takes_what_its_optimizer_copies(settings: dict[str, Any], n_bytes: int) -> None:
    assert taken(**settings) == n_bytes


def test_a_step_on_a_shard_takes_a_share() -> None:
    held = of_gpt2(sharding="fsdp", gpus=4)
    assert step_line(*held, 4).n_bytes == GPT2
    held = of_gpt2(sharding="fsdp", gpus=4, optimizer_step="for-loop")
    assert step_line(*held, 4).n_bytes == 2 * EMBEDDING


def test_zero_steps_on_one_flat_tensor() -> None:
    held = of_gpt2(sharding="zero-1", gpus=4, optimizer_step="for-loop")
    assert step_line(*held, 4).n_bytes == 2 * GPT2


@pytest.mark.parametrize(
    "settings", [{"framework": "megatron"}, {"sharding": "distributed-optimizer", "gpus": 4}]
)
def test_megatron_steps_with_a_fused_kernel(settings: dict[str, Any]) -> None:
    assert taken(**settings) == 0
