"""MiniMind: parameter counts of its versions and its mixture of experts."""

from __future__ import annotations

from typing import Any

from tokmill.bill.models.load import model_from_config

L, D, A, F, V = 3, 64, 4, 20, 50


def sizes(**more: Any) -> dict[str, Any]:
    return {
        "num_hidden_layers": L, "hidden_size": D, "num_attention_heads": A, "vocab_size": V, **more
    }  # fmt: skip


def test_minimind_is_tied_norms_heads_and_is_pi_times_as_wide() -> None:
    found = model_from_config(sizes(model_type="minimind", num_key_value_heads=2))
    h, width = D // A, 256  # 64 * pi = 201.06, up to a multiple of 64

    layer = 2 * D * D + 2 * D * 2 * h + 3 * D * width + 2 * D + 2 * h
    assert found.parameters == V * D + L * layer + D
    assert found.ffn == width
    assert found.buffer_bytes == 2 * 4 * 32768 * h


def test_experts_of_minimind_are_as_wide_as_its_layer_and_shared_ones_come_on_top() -> None:
    mixed = sizes(model_type="minimind", num_key_value_heads=2, use_moe=True, n_shared_experts=1)
    dense = model_from_config(sizes(model_type="minimind", num_key_value_heads=2)).parameters
    found = model_from_config(mixed)

    assert found.parameters == dense + L * (4 * 3 * D * 256 + 4 * D)
    assert found.active_parameters == found.parameters - L * 3 * 3 * D * 256
