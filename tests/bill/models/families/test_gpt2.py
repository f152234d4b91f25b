"""GPT-2 and those after it: the published formulas of their parameters, and what is peculiar."""

from __future__ import annotations

from typing import Any

import pytest

from tokmill.bill.models.load import model_from_config
from tokmill.bill.models.model import Model

L, D, A, F, V, S = 3, 12, 4, 20, 50, 16
BLOCK = 4 * (D * D + D) + 2 * D * F + F + D + 4 * D


def model(kind: str, **config: Any) -> Model:
    sizes = {"num_hidden_layers": L, "hidden_size": D, "num_attention_heads": A, "vocab_size": V}
    return model_from_config({"model_type": kind, **sizes, **config})


def test_gpt2_is_12_d_squared_and_13_d_a_layer() -> None:
    assert (
        model("gpt2", n_positions=S).parameters == V * D + S * D + L * (12 * D * D + 13 * D) + 2 * D
    )
    assert model("gpt2", n_positions=S, n_inner=F).parameters == V * D + S * D + L * BLOCK + 2 * D


def test_cross_attention_has_its_matrices_and_a_norm() -> None:
    crossed = model("gpt2", n_positions=S, add_cross_attention=True)

    layer = 4 * (D * D + D) + 2 * D
    assert crossed.parameters == model("gpt2", n_positions=S).parameters + L * layer
    assert "cross-attention" in crossed.leaves_out[0]


def test_plain_is_gpt2_without_learnt_positions_and_dropout() -> None:
    plain = model("plain")

    assert plain.parameters == V * D + L * (12 * D * D + 13 * D) + 2 * D
    assert plain.by_module() == {
        "embedding": V * D, "norm": L * 4 * D + 2 * D, "attention": L * (4 * D * D + 4 * D),
        "mlp": L * (8 * D * D + 5 * D),
    }  # fmt: skip
    assert (plain.dropout, model("gpt2").dropout) == (0.0, 0.1)


def test_matrices_of_gpt2_are_stored_input_first() -> None:
    up = next(t for t in model("gpt2").tensors if t.name == "transformer.h.{}.mlp.c_fc.weight")

    assert (up.shape, up.n_in, up.n_out) == ((D, 4 * D), D, 4 * D)


def test_gpt_neox_has_a_head_of_its_own() -> None:
    assert model("gpt_neox", intermediate_size=F).parameters == 2 * V * D + L * BLOCK + 2 * D


def test_a_quarter_of_each_head_of_gpt_neox_is_rotated() -> None:
    config = {"hidden_size": 64, "intermediate_size": F}

    assert model("gpt_neox", **config).buffer_bytes == 2 * 4 * 2
    assert model("gpt_neox", **config, rotary_pct=1.0).buffer_bytes == 2 * 4 * 8


def test_opt_learns_two_positions_more() -> None:
    config = {"ffn_dim": F, "max_position_embeddings": S}

    assert model("opt", **config).parameters == V * D + (S + 2) * D + L * BLOCK + 2 * D


def test_the_narrow_embedding_of_opt_350m_goes_through_two_matrices() -> None:
    narrow = model("opt", ffn_dim=F, word_embed_proj_dim=5, do_layer_norm_before=False)

    assert narrow.parameters == V * 5 + 2 * 5 * D + (2048 + 2) * D + L * BLOCK


def test_bloom_norms_its_embedding_and_needs_no_width() -> None:
    assert model("bloom").parameters == V * D + 2 * D + L * (12 * D * D + 13 * D) + 2 * D


def test_falcon_7b_has_one_key_value_head_and_one_norm() -> None:
    falcon = model("falcon")
    h = D // A

    assert falcon.parameters == V * D + L * (D * (D + 2 * h) + D * D + 8 * D * D + 2 * D) + 2 * D
    assert (falcon.attention.kv_heads, falcon.tied) == (1, True)


def test_falcon_40b_has_groups_and_two_norms() -> None:
    falcon = model("falcon", new_decoder_architecture=True, num_kv_heads=2)
    h = D // A

    assert falcon.parameters == V * D + L * (D * (D + 4 * h) + D * D + 8 * D * D + 4 * D) + 2 * D
    assert falcon.attention.kv_heads == 2
    one_norm = {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1}
    assert model("falcon", **one_norm).parameters == falcon.parameters - L * 2 * D


def test_phi_has_one_norm_a_layer_and_a_bias_of_the_head() -> None:
    expected = V * D + (V * D + V) + L * (4 * (D * D + D) + 2 * D * F + F + D + 2 * D) + 2 * D

    assert model("phi", intermediate_size=F).parameters == expected


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
