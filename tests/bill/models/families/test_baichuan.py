"""Baichuan: parameter counts of the code of its authors."""

from __future__ import annotations

from typing import Any

from tokmill.bill.models.load import model_from_config

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
