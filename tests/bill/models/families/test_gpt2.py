"""GPT-2 and those after it: the published formulas of their parameters, and what is peculiar."""

from __future__ import annotations

from typing import Any

import pytest

from tokmill.bill.models.load import model_from_config
from tokmill.bill.models.model import Model

L, D, A, F, V, S = 3, 12, 4, 20, 50, 16


def model(kind: str, **config: Any) -> Model:
    sizes = {"num_hidden_layers": L, "hidden_size": D, "num_attention_heads": A, "vocab_size": V}
    return model_from_config({"model_type": kind, **sizes, **config})


def test_plain_is_gpt2_without_learnt_positions_and_dropout() -> None:
    plain = model("plain")

    assert plain.parameters == V * D + L * (12 * D * D + 13 * D) + 2 * D
    assert plain.by_module() == {
        "embedding": V * D, "norm": L * 4 * D + 2 * D, "attention": L * (4 * D * D + 4 * D),
        "mlp": L * (8 * D * D + 5 * D),
    }  # fmt: skip
    assert (plain.dropout, model("gpt2").dropout) == (0.0, 0.1)


@pytest.mark.parametrize(
    ("kind", "config", "between", "after_softmax"),
    [
        ("gpt2", {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.3}, 0.0, 0.3),
        ("gpt2", {"resid_pdrop": 0.2, "embd_pdrop": 0.4, "attn_pdrop": 0.0}, 0.4, 0.0),
        ("gpt_neox", {"intermediate_size": F, "hidden_dropout": 0.2}, 0.2, 0.0),
        ("opt", {"ffn_dim": F}, 0.1, 0.0),
        ("bloom", {"attention_dropout": 0.4}, 0.0, 0.4),
        ("falcon", {}, 0.0, 0.0),
        ("phi", {"intermediate_size": F, "embd_pdrop": 0.5}, 0.5, 0.0),
    ],
)
def test_dropout_between_matrices_and_after_softmax_are_read_apart(
    kind: str, config: dict[str, Any], between: float, after_softmax: float
) -> None:
    found = model(kind, **config)
    assert (found.dropout, found.attention_dropout) == (between, after_softmax)
