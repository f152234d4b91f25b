"""DeepSeek: latent attention with and without compressed queries, dense layers first."""

from __future__ import annotations

from typing import Any

from tokmill.bill.models.load import model_from_config
from tokmill.bill.models.model import Model

L, D, A, F, V, E, M = 3, 12, 4, 20, 50, 6, 7
KV, Q, ROPE, NOPE, VALUE = 8, 10, 2, 3, 5


def model(kind: str, **config: Any) -> Model:
    sizes = {
        "num_hidden_layers": L, "hidden_size": D, "num_attention_heads": A, "vocab_size": V,
        "intermediate_size": F, "num_experts_per_tok": 2, "moe_intermediate_size": M,
        "n_routed_experts": E, "n_shared_experts": 2, "first_k_dense_replace": 1,
        "kv_lora_rank": KV, "q_lora_rank": Q, "qk_rope_head_dim": ROPE,
        "qk_nope_head_dim": NOPE, "v_head_dim": VALUE,
    }  # fmt: skip
    return model_from_config({"model_type": kind, **sizes, **config})


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


def test_layers_that_are_not_loaded_are_named() -> None:
    assert "multi-token prediction" in model("deepseek_v3").leaves_out[0]
    assert model("deepseek_v3", num_nextn_predict_layers=0).leaves_out == ()
