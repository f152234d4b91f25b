"""Baichuan, ChatGLM, MiniMind: formulas of their own code."""

from __future__ import annotations

from typing import Any

import pytest

from tokmill.bill.models.load import model_from_config
from tokmill.errors import UsageError

L, D, A, F, V = 3, 64, 4, 20, 50


def sizes(**more: Any) -> dict[str, Any]:
    return {
        "num_hidden_layers": L, "hidden_size": D, "num_attention_heads": A, "vocab_size": V, **more
    }  # fmt: skip


def test_baichuan_packs_queries_keys_and_values() -> None:
    found = model_from_config(sizes(model_type="baichuan", intermediate_size=F))

    assert found.parameters == L * (4 * D * D + 3 * D * F + 2 * D) + D + 2 * V * D
    packed = next(t for t in found.tensors if "W_pack" in t.name)
    assert (packed.shape, packed.split) == ((3 * D, D), "columns")
    assert "ALiBi" in found.leaves_out[0]


CHATGLM = {
    "model_type": "chatglm", "num_layers": L, "hidden_size": D, "num_attention_heads": A,
    "padded_vocab_size": V, "ffn_hidden_size": F, "kv_channels": 16, "seq_length": 32,
}  # fmt: skip


def test_chatglm_has_groups_and_a_bias_of_the_fused_matrix() -> None:
    config = {"multi_query_attention": True, "multi_query_group_num": 2, "add_qkv_bias": True}
    found = model_from_config(CHATGLM | config)
    qkv = D + 2 * 2 * 16

    assert found.parameters == L * (D * qkv + qkv + D * D + 3 * D * F + 2 * D) + D + 2 * V * D
    assert (found.attention.kv_heads, found.positions, found.tied) == (2, 32, False)


def test_chatglm_without_groups_has_a_key_per_head() -> None:
    found = model_from_config(CHATGLM | {"add_bias_linear": True})
    biases = 3 * D + D + 2 * F + D

    assert found.parameters == L * (4 * D * D + 3 * D * F + biases + 2 * D) + D + 2 * V * D


def test_the_first_chatglm_is_refused_for_it_is_another_model() -> None:
    with pytest.raises(UsageError, match="ChatGLM-6B of the first version is not known"):
        model_from_config(CHATGLM | {"inner_hidden_size": 16384})


def test_minimind_is_tied_norms_heads_and_is_pi_times_as_wide() -> None:
    found = model_from_config(sizes(model_type="minimind", num_key_value_heads=2))
    h, width = D // A, 256  # 64 * pi = 201.06, up to a multiple of 64

    layer = 2 * D * D + 2 * D * 2 * h + 3 * D * width + 2 * D + 2 * h
    assert found.parameters == V * D + L * layer + D
    assert found.ffn == width
    assert found.buffer_bytes == 2 * 4 * 32768 * h


def test_minimind_2_has_no_norms_of_heads_and_another_width() -> None:
    config = sizes(model_type="minimind", num_key_value_heads=2, n_routed_experts=4)
    found = model_from_config(config)
    h, width = D // A, 192  # 64 * 8 / 3 = 170.67

    layer = 2 * D * D + 2 * D * 2 * h + 3 * D * width + 2 * D
    assert found.parameters == V * D + L * layer + D


def test_experts_of_minimind_are_as_wide_as_its_layer_and_shared_ones_come_on_top() -> None:
    mixed = sizes(model_type="minimind", num_key_value_heads=2, use_moe=True, n_shared_experts=1)
    dense = model_from_config(sizes(model_type="minimind", num_key_value_heads=2)).parameters
    found = model_from_config(mixed)

    assert found.parameters == dense + L * (4 * 3 * D * 256 + 4 * D)
    assert found.active_parameters == found.parameters - L * 3 * 3 * D * 256
