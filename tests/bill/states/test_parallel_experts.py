"""Experts over ranks: expert parallelism, and expert tensor parallelism of Megatron-LM."""

from __future__ import annotations

from typing import Any

import pytest

from tokmill.bill.models.load import load_model
from tokmill.bill.models.model import Model
from tokmill.bill.states.parallel import RankTensor, rank_tensors
from tokmill.bill.states.states import rank_states
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings


def named(name: str) -> Model:
    return load_model(ModelSettings(name=name))


def megatron(**settings: Any) -> TrainingSettings:
    split = settings.get("tensor_parallel", 1) > 1
    defaults = {"framework": "megatron", "sharding": "distributed-optimizer"}
    return TrainingSettings(**defaults | {"sequence_parallel": split} | settings)


def down_projection(**settings: Any) -> RankTensor:
    tensors = rank_tensors(named("mixtral-8x7b"), megatron(**settings))
    return next(held for held in tensors if held.tensor.name.endswith("experts.down_proj"))


def test_experts_are_split_as_layers_are_unless_they_have_a_number_of_their_own() -> None:
    layout = {"gpus": 16, "tensor_parallel": 2, "expert_parallel": 4}
    assert down_projection(**layout).shape == (2, 4096, 7168)
    assert down_projection(**layout, expert_tensor_parallel=1).shape == (2, 4096, 14_336)
    assert down_projection(**layout, expert_tensor_parallel=4).shape == (2, 4096, 3584)


@pytest.mark.parametrize(("etp", "edp"), [(1, 4), (2, 2), (4, 1)])
def test_world_over_etp_ep_and_pp_ranks_share_an_experts_states(etp: int, edp: int) -> None:
    layout = {"gpus": 16, "tensor_parallel": 2, "expert_parallel": 4}
    held = down_projection(**layout, expert_tensor_parallel=etp)
    ranks = 16 // 2
    assert held.among(ranks).count / ranks == held.count / edp


def footprint(model: Model, training: TrainingSettings) -> float:
    """Return weights, gradients and optimizer states by Megatron-LM's theoretical_memory_usage.py.

    Split by tensor parallelism: attention, dense and shared feed-forward layers, embeddings.
    Repeated: norms and routers (and MLA's are counted as split there). Split by ETP x EP: experts.
    """
    t, p = training.tensor_parallel, training.pipeline_parallel
    etp, ep = training.expert_tensor_parallel or t, training.expert_parallel
    modules = model.by_module()
    split = (modules["attention"] + modules.get("mlp", 0)) / p + modules["embedding"]
    split += modules["head"] if p == 1 else 0
    norms = modules["norm"] - model.hidden * (p > 1)
    latent = model.attention.kv_rank + model.attention.q_rank if model.attention.kv_rank else 0
    dense = (split + latent * model.layers) / t + (norms - latent * model.layers) / p
    dense += modules["router"] / p
    experts = modules["experts"] / p / (etp * ep)
    return dense * (6 + 12 / (training.gpus / t / p)) + experts * (
        6 + 12 / (training.gpus / (etp * ep * p))
    )


@pytest.mark.parametrize(
    "layout",
    [
        {"gpus": 8, "expert_parallel": 8},
        {"gpus": 16, "tensor_parallel": 2, "expert_parallel": 4, "expert_tensor_parallel": 1},
        {"gpus": 16, "tensor_parallel": 4, "expert_parallel": 2, "expert_tensor_parallel": 2},
        {"gpus": 16, "tensor_parallel": 2, "expert_parallel": 2, "expert_tensor_parallel": 4},
        {"gpus": 64, "tensor_parallel": 2, "pipeline_parallel": 4, "expert_parallel": 8,
         "expert_tensor_parallel": 1},
    ],
)  # fmt: skip
def test_states_of_mixtral_equal_megatrons_own_arithmetic(layout: dict[str, int]) -> None:
    model, training = named("mixtral-8x7b"), megatron(**layout)
    assert rank_states(model, training, 0).n_bytes == pytest.approx(
        footprint(model, training), rel=1e-6
    )


@pytest.mark.parametrize(
    "layout",
    [
        {"gpus": 64, "expert_parallel": 64},
        {"gpus": 64, "tensor_parallel": 4, "expert_parallel": 64, "expert_tensor_parallel": 1},
    ],
)
def test_states_of_deepseek_v3_nearly_equal_megatrons_own_arithmetic(
    layout: dict[str, int],
) -> None:
    """Its compressions, 1% of attention, stand on every rank; Megatron's formula splits them."""
    model, training = named("deepseek-v3"), megatron(**layout)
    found, expected = rank_states(model, training).n_bytes, footprint(model, training)
    alone = training.tensor_parallel == 1
    assert found == pytest.approx(expected, rel=1e-6 if alone else 0.05)
    assert found >= expected * (1 - 1e-6)
