from __future__ import annotations

from typing import Any

import pytest

from tokmill.bill.models.load import load_model
from tokmill.bill.models.model import Model
from tokmill.bill.states.parallel import (
    RankTensor,
    data_parallel,
    rank_tensors,
    ranks_per_node,
    state_ranks,
)
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings


def named(name: str) -> Model:
    return load_model(ModelSettings(name=name))


def by_name(model: Model, **settings: Any) -> dict[str, RankTensor]:
    tensors = rank_tensors(model, TrainingSettings(**settings))
    return {held.tensor.name.removeprefix("model.layers.{}."): held for held in tensors}


def test_ranks_that_hold_the_same_are_data_and_context_parallel() -> None:
    training = TrainingSettings(gpus=64, tensor_parallel=4, pipeline_parallel=2, context_parallel=2)
    assert (state_ranks(training), data_parallel(training)) == (8, 4)


@pytest.mark.parametrize(
    ("settings", "ranks"),
    [({"gpus": 4}, 4), ({"gpus": 64}, 8), ({"gpus": 64, "gpus_per_node": 4}, 4)],
)
def test_a_machine_has_eight_ranks_unless_said(settings: dict[str, int], ranks: int) -> None:
    assert ranks_per_node(TrainingSettings(**settings)) == ranks


def test_tensor_parallelism_splits_matrices_and_ids_and_repeats_norms() -> None:
    held = by_name(named("llama-3-8b"), gpus=4, tensor_parallel=4)
    assert held["self_attn.q_proj.weight"].shape == (1024, 4096)
    assert held["self_attn.k_proj.weight"].shape == (256, 4096)
    assert held["self_attn.o_proj.weight"].shape == (4096, 1024)
    assert held["mlp.down_proj.weight"].shape == (4096, 3584)
    assert held["input_layernorm.weight"].shape == (4096,)
    assert held["model.embed_tokens.weight"].shape == (32_064, 4096)
    assert held["lm_head.weight"].shape == (32_064, 4096)


def test_expert_parallel_ranks_hold_whole_experts_and_share_all() -> None:
    held = by_name(named("mixtral-8x7b"), gpus=8, expert_parallel=4)["mlp.experts.down_proj"]
    assert held.shape == (2, 4096, 14_336)
    assert held.among(1).shape == (2, 4096, 14_336)
    assert held.among(8).shape == (8, 4096, 14_336)


def test_experts_are_split_inside_by_tensor_parallelism() -> None:
    held = by_name(named("mixtral-8x7b"), gpus=2, tensor_parallel=2)
    assert held["mlp.experts.gate_up_proj"].shape == (8, 14_336, 4096)
    assert held["mlp.experts.down_proj"].shape == (8, 4096, 7168)
