"""Peaks of real optimizers' steps are compared with ours in tests/oracles."""

from __future__ import annotations

from typing import Any

import pytest

from tokmill.bill.models.load import load_model
from tokmill.bill.states.optimizers import step_line
from tokmill.bill.states.parallel import RankTensor, rank_tensors
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings

GPT2 = 124_439_808
EMBEDDING = 50_257 * 768


def of_gpt2(**settings: Any) -> tuple[tuple[RankTensor, ...], TrainingSettings]:
    training = TrainingSettings(**settings)
    return rank_tensors(load_model(ModelSettings(name="gpt2")), training), training


def taken(**settings: Any) -> int:
    return step_line(*of_gpt2(**settings), 1).n_bytes


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
