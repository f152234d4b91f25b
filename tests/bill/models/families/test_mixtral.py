"""Mixtures of experts: the published formulas of all and of active parameters, and their layers."""

from __future__ import annotations

from typing import Any

import pytest

from tokmill.bill.models.load import model_from_config
from tokmill.bill.models.model import Model
from tokmill.errors import UsageError

L, D, A, K, H, F, V, E, ACTIVE, M = 4, 12, 4, 2, 5, 20, 50, 6, 2, 7


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


def test_more_active_experts_than_experts_are_refused() -> None:
    with pytest.raises(UsageError, match="num_experts_per_tok 7 is above num_local_experts 6"):
        model("mixtral", num_experts_per_tok=7)
