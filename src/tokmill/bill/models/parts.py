"""The parts that models are built of: matrices, norms, attention, feed-forward layers, experts.

A part is a tuple of tensors named as inside a layer; `in_layers` puts parts into layers. Splits are
those of Megatron-LM's tensor parallelism: matrices into a layer's inside by output features
(columns), matrices out of it by input features (rows), embedding and head by ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tokmill.bill.models.model import Module, Split, Tensor
from tokmill.bill.models.shape import Shape

Part = tuple[Tensor, ...]


def in_layers(prefix: str, layers: Iterable[int], *parts: Part, first: int = 0) -> Part:
    """Return the tensors of the parts as they stand in each of `layers`, under `prefix`.

    Names count layers from `first` on.
    """
    held = tuple(layers)
    tensors = (tensor for part in parts for tensor in part)
    return tuple(
        replace(t, name=f"{prefix}.{{}}.{t.name}", layers=held, first=first)
        for t in tensors
        if held
    )


def linear(
    name: str,
    n_in: int,
    n_out: int,
    module: Module,
    split: Split = "none",
    *,
    bias: bool = False,
    transposed: bool = False,
) -> Part:
    """Return a matrix of nn.Linear, (n_out, n_in), or of Conv1D, transposed; and its bias."""
    shape = (n_in, n_out) if transposed else (n_out, n_in)
    weight = Tensor(f"{name}.weight", shape, module, "linear", split, n_in, n_out)
    return (weight, *linear_bias(name, n_out, module, split)) if bias else (weight,)


def linear_bias(name: str, n_out: int, module: Module, split: Split) -> Part:
    """Return the bias of a matrix: split as the matrix's output features are."""
    held: Split = "none" if split == "rows" else split
    return (Tensor(f"{name}.bias", (n_out,), module, "vector", held),)


def vector(name: str, width: int, module: Module, split: Split = "none") -> Part:
    """Return a vector."""
    return (Tensor(name, (width,), module, "vector", split),)


def norm(name: str, width: int, *, bias: bool = False) -> Part:
    """Return the weight of a norm, and with LayerNorm its bias."""
    weight = vector(f"{name}.weight", width, "norm")
    return (*weight, *vector(f"{name}.bias", width, "norm")) if bias else weight


def norms(shape: Shape, *names: str, bias: bool = False) -> Part:
    """Return norms over the hidden size."""
    return tuple(tensor for name in names for tensor in norm(name, shape.hidden, bias=bias))


def embedding(name: str, rows: int, width: int, split: Split = "vocabulary") -> Part:
    """Return a lookup table, (rows, width)."""
    return (Tensor(f"{name}.weight", (rows, width), "embedding", "embedding", split, rows, width),)


def head(shape: Shape, name: str = "lm_head", *, bias: bool = False) -> Part:
    """Return the matrix that makes logits; tied, it is the embedding and only its bias stays."""
    if not shape.tied:
        return linear(name, shape.hidden, shape.vocabulary, "head", "vocabulary", bias=bias)
    return linear_bias(name, shape.vocabulary, "head", "vocabulary") if bias else ()


def attention(
    shape: Shape, *, bias: bool = False, out_bias: bool = False, out: str = "o_proj"
) -> Part:
    """Return q, k, v and the output matrix as Llama has them."""
    query, key_value = shape.query_width, shape.kv_width
    inside = (("q_proj", query), ("k_proj", key_value), ("v_proj", key_value))
    return (
        *(
            tensor
            for name, width in inside
            for tensor in linear(
                f"self_attn.{name}", shape.hidden, width, "attention", "columns", bias=bias
            )
        ),
        *linear(f"self_attn.{out}", query, shape.hidden, "attention", "rows", bias=out_bias),
    )


def fused_attention(shape: Shape, qkv: int, *, bias: bool) -> Part:
    """Return one matrix for queries, keys and values, and the output matrix."""
    name = "self_attention"
    return (
        *linear(f"{name}.query_key_value", shape.hidden, qkv, "attention", "columns", bias=bias),
        *linear(f"{name}.dense", shape.query_width, shape.hidden, "attention", "rows", bias=bias),
    )


def head_norms(width: int, key_width: int = 0) -> Part:
    """Return the norms of queries and keys: over a head, or over the widths given."""
    return (*norm("self_attn.q_norm", width), *norm("self_attn.k_norm", key_width or width))


def gated_mlp(hidden: int, ffn: int, name: str = "mlp", *, bias: bool = False) -> Part:
    """Return gate, up and down as Llama has them."""
    return (
        *linear(f"{name}.gate_proj", hidden, ffn, "mlp", "columns", bias=bias),
        *linear(f"{name}.up_proj", hidden, ffn, "mlp", "columns", bias=bias),
        *linear(f"{name}.down_proj", ffn, hidden, "mlp", "rows", bias=bias),
    )


def plain_mlp(
    hidden: int, ffn: int, up: str, down: str, *, bias: bool = True, transposed: bool = False
) -> Part:
    """Return the two matrices of a feed-forward layer without a gate."""
    return (
        *linear(up, hidden, ffn, "mlp", "columns", bias=bias, transposed=transposed),
        *linear(down, ffn, hidden, "mlp", "rows", bias=bias, transposed=transposed),
    )


def experts(hidden: int, ffn: int, count: int, name: str = "mlp.experts") -> Part:
    """Return the matrices of gated experts: (count, 2 ffn, hidden) and (count, hidden, ffn)."""
    up, down = (count, 2 * ffn, hidden), (count, hidden, ffn)
    return (
        Tensor(f"{name}.gate_up_proj", up, "experts", "experts", "columns", hidden, 2 * ffn),
        Tensor(f"{name}.down_proj", down, "experts", "experts", "rows", ffn, hidden),
    )


def router(hidden: int, count: int, name: str = "mlp.gate", *, bias: bool = False) -> Part:
    """Return the matrix that chooses experts. Megatron-LM keeps all of it on every GPU."""
    return linear(name, hidden, count, "router", bias=bias)
