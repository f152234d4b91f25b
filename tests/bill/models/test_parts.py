"""Parts: shapes, sides and splits of matrices and their biases."""

from __future__ import annotations

from dataclasses import replace

from tokmill.bill.models import parts
from tokmill.bill.models.model import Tensor
from tokmill.bill.models.shape import Shape

SHAPE = Shape(layers=2, hidden=8, heads=4, kv_heads=2, head_dim=3, ffn=20, vocabulary=50)


def test_a_matrix_knows_its_sides_whichever_way_it_is_stored() -> None:
    (plain,) = parts.linear("up", 8, 20, "mlp", "columns")
    (conv,) = parts.linear("up", 8, 20, "mlp", "columns", transposed=True)

    assert plain == Tensor("up.weight", (20, 8), "mlp", "linear", "columns", 8, 20)
    assert (conv.shape, conv.n_in, conv.n_out) == ((8, 20), 8, 20)


def test_a_bias_is_split_with_columns_but_not_with_rows() -> None:
    splits = {
        split: parts.linear("x", 8, 20, "mlp", split, bias=True)[1].split
        for split in ("columns", "rows", "none", "vocabulary")
    }
    assert splits == {
        "columns": "columns",
        "rows": "none",
        "none": "none",
        "vocabulary": "vocabulary",
    }


def test_attention_has_the_widths_of_its_heads() -> None:
    found = {t.name: (t.shape, t.split) for t in parts.attention(SHAPE, bias=True)}

    assert found == {
        "self_attn.q_proj.weight": ((12, 8), "columns"),
        "self_attn.q_proj.bias": ((12,), "columns"),
        "self_attn.k_proj.weight": ((6, 8), "columns"),
        "self_attn.k_proj.bias": ((6,), "columns"),
        "self_attn.v_proj.weight": ((6, 8), "columns"),
        "self_attn.v_proj.bias": ((6,), "columns"),
        "self_attn.o_proj.weight": ((8, 12), "rows"),
    }


def test_experts_are_the_first_axis_and_a_gate_doubles_the_width() -> None:
    up, down = parts.experts(8, 5, 3)

    assert (up.shape, up.n_in, up.n_out, up.split) == ((3, 10, 8), 8, 10, "columns")
    assert (down.shape, down.n_in, down.n_out, down.split) == ((3, 8, 5), 5, 8, "rows")
    assert {up.kind, down.kind} == {"experts"}


def test_a_tied_head_has_only_a_bias() -> None:
    assert parts.head(replace(SHAPE, tied=True)) == ()
    assert [t.name for t in parts.head(replace(SHAPE, tied=True), bias=True)] == ["lm_head.bias"]
    assert [t.shape for t in parts.head(SHAPE, bias=True)] == [(50, 8), (50,)]


def test_each_layer_with_a_part_counts_it_once() -> None:
    tensors = parts.in_layers("model.layers", [1, 3], parts.norm("n", 8), parts.norm("m", 2))

    assert [t.name for t in tensors] == ["model.layers.{}.n.weight", "model.layers.{}.m.weight"]
    assert [t.count for t in tensors] == [16, 4]
    assert parts.in_layers("model.layers", [], parts.norm("n", 8)) == ()
