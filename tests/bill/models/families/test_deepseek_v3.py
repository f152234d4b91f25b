"""DeepSeek: latent attention with and without compressed queries, dense layers first."""

from __future__ import annotations

from typing import Any

from tokmill.bill.models.load import model_from_config
from tokmill.bill.models.model import Attention, Experts, Model

L, D, A, F, V, E, M = 3, 12, 4, 20, 50, 6, 7
KV, Q, ROPE, NOPE, VALUE = 8, 10, 2, 3, 5
ATTENTION = D * (KV + ROPE) + KV + KV * A * (NOPE + VALUE) + A * VALUE * D
QUERIES = D * Q + Q + Q * A * (NOPE + ROPE)
MIXED = E * 3 * D * M + D * E + 3 * D * 2 * M


def model(kind: str, **config: Any) -> Model:
    sizes = {
        "num_hidden_layers": L, "hidden_size": D, "num_attention_heads": A, "vocab_size": V,
        "intermediate_size": F, "num_experts_per_tok": 2, "moe_intermediate_size": M,
        "n_routed_experts": E, "n_shared_experts": 2, "first_k_dense_replace": 1,
        "kv_lora_rank": KV, "q_lora_rank": Q, "qk_rope_head_dim": ROPE,
        "qk_nope_head_dim": NOPE, "v_head_dim": VALUE,
    }  # fmt: skip
    return model_from_config({"model_type": kind, **sizes, **config})


def test_the_first_layers_are_dense_and_the_rest_share_experts() -> None:
    found = model("deepseek_v3")
    expected = L * (QUERIES + ATTENTION + 2 * D) + 3 * D * F + 2 * MIXED + D + 2 * V * D

    assert found.parameters == expected
    assert found.active_parameters == expected - 2 * 4 * 3 * D * M
    assert found.experts == Experts(E, 2, M, 2 * M, (1, 2))


def test_queries_that_are_not_compressed_are_one_matrix() -> None:
    plain = model("deepseek_v2", q_lora_rank=None)
    expected = L * (D * A * (NOPE + ROPE) + ATTENTION + 2 * D) + 3 * D * F + 2 * MIXED

    assert plain.parameters == expected + D + 2 * V * D
    assert plain.attention == Attention(
        A, A, NOPE + ROPE, kv_rank=KV, rope_dim=ROPE, nope_dim=NOPE, value_dim=VALUE
    )


def test_mla_does_not_split_the_matrices_to_the_ranks() -> None:
    splits = {
        t.name.removeprefix("model.layers.{}.self_attn."): t.split
        for t in model("deepseek_v2").tensors
        if "self_attn" in t.name and t.kind == "linear"
    }
    assert splits == {
        "q_a_proj.weight": "none", "q_b_proj.weight": "columns",
        "kv_a_proj_with_mqa.weight": "none", "kv_b_proj.weight": "columns",
        "o_proj.weight": "rows",
    }  # fmt: skip


def test_v3_holds_a_router_bias_per_expert_that_is_no_parameter() -> None:
    rotary = 2 * 4 * (ROPE // 2)

    assert model("deepseek_v2").buffer_bytes == rotary
    assert model("deepseek_v3").buffer_bytes == rotary + 4 * E * 2


def test_layers_that_are_not_loaded_are_named() -> None:
    assert "multi-token prediction" in model("deepseek_v3").leaves_out[0]
    assert model("deepseek_v3", num_nextn_predict_layers=0).leaves_out == ()
