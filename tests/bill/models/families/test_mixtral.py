"""Mixtures of experts: the published formulas of all and of active parameters, and their layers."""

from __future__ import annotations

from typing import Any

import pytest

from tokmill.bill.models.load import model_from_config
from tokmill.bill.models.model import Experts, Model
from tokmill.errors import UsageError

L, D, A, K, H, F, V, E, ACTIVE, M = 4, 12, 4, 2, 5, 20, 50, 6, 2, 7
REST = L * (D * A * H + 2 * D * K * H + A * H * D + 2 * D) + D + 2 * V * D


def model(kind: str, **config: Any) -> Model:
    sizes = {
        "num_hidden_layers": L, "hidden_size": D, "num_attention_heads": A, "vocab_size": V,
        "num_key_value_heads": K, "head_dim": H, "intermediate_size": F,
        "num_experts_per_tok": ACTIVE, "moe_intermediate_size": M,
        "shared_expert_intermediate_size": 9, "num_experts": E,
    }  # fmt: skip
    if kind in ("mixtral", "gpt_oss"):
        sizes["num_local_experts"] = sizes.pop("num_experts")
    return model_from_config({"model_type": kind, **sizes, **config})


def test_mixtral_is_llama_with_experts_as_wide_as_the_layer() -> None:
    mixtral = model("mixtral")

    assert mixtral.parameters == REST + L * (E * 3 * D * F + D * E)
    assert mixtral.active_parameters == mixtral.parameters - L * (E - ACTIVE) * 3 * D * F
    assert mixtral.experts == Experts(E, ACTIVE, F, 0, (0, 1, 2, 3))
    assert mixtral.ffn == F


def test_qwen3_moe_norms_heads_and_has_narrow_experts() -> None:
    assert model("qwen3_moe").parameters == REST + L * (E * 3 * D * M + D * E + 2 * H)


def test_qwen2_moe_has_a_shared_expert_with_a_gate_and_biases() -> None:
    qwen = model("qwen2_moe")
    attention_bias = A * H + 2 * K * H

    assert qwen.parameters == REST + L * (E * 3 * D * M + D * E + 3 * D * 9 + D + attention_bias)
    assert qwen.experts == Experts(E, ACTIVE, M, 9, (0, 1, 2, 3))


def test_gpt_oss_has_biases_in_experts_and_sinks() -> None:
    oss = model("gpt_oss")
    experts = E * (2 * D * F + 2 * F + F * D + D)
    attention = A * H + 2 * K * H + D + A

    assert oss.parameters == REST + L * (experts + D * E + E + attention)
    assert oss.active_parameters == oss.parameters - L * experts * (E - ACTIVE) // E
    assert oss.attention.windows == (128, 0, 128, 0)


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        ({}, (0, 1, 2, 3)),
        ({"decoder_sparse_step": 2}, (1, 3)),
        ({"mlp_only_layers": [0, 3]}, (1, 2)),
        ({"decoder_sparse_step": 2, "mlp_only_layers": [1]}, (3,)),
    ],
)
def test_layers_without_experts_are_dense(config: dict[str, Any], layers: tuple[int, ...]) -> None:
    qwen = model("qwen3_moe", **config)
    mixed = len(layers) * (E * 3 * D * M + D * E) + (L - len(layers)) * 3 * D * F

    assert qwen.experts is not None
    assert qwen.experts.layers == layers
    assert qwen.parameters == REST + L * 2 * H + mixed


def test_a_mixture_that_is_dense_everywhere_has_no_experts() -> None:
    dense = model("qwen3_moe", mlp_only_layers=[0, 1, 2, 3])

    assert dense.experts is None
    assert dense.active_parameters == dense.parameters


def test_more_active_experts_than_experts_are_refused() -> None:
    with pytest.raises(UsageError, match="num_experts_per_tok 7 is above num_local_experts 6"):
        model("mixtral", num_experts_per_tok=7)
