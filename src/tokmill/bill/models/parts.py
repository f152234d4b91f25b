"""Parts of models as tensors: matrices, norms, attention, feed-forward layers, experts.

Names are those inside a layer; `in_layers` repeats parts in layers. The split is Megatron-LM's
tensor parallelism: matrices into attention or a feed-forward layer by output features (columns),
matrices out of it by input features (rows), embedding and head by ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tokmill.bill.models.model import Module, Split, Tensor
from tokmill.bill.models.shape import Shape

Part = tuple[Tensor, ...]

LLAMA_QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")


def in_layers(prefix: str, layers: Iterable[int], *parts: Part, first: int = 0) -> Part:
    """Return the tensors of the parts, repeated in `layers` under `prefix`.

    `first` is the layer that is number 0 in their names.
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
    """Return a matrix, and its bias: (n_out, n_in) of nn.Linear, `transposed` of Conv1D."""
    shape = (n_in, n_out) if transposed else (n_out, n_in)
    weight = Tensor(f"{name}.weight", shape, module, "linear", split, n_in, n_out)
    return (weight, *linear_bias(name, n_out, module, split)) if bias else (weight,)


def linear_bias(name: str, n_out: int, module: Module, split: Split) -> Part:
    """Return the bias of a matrix, split like the output features of the matrix."""
    return vector(f"{name}.bias", n_out, module, "none" if split == "rows" else split)


def vector(name: str, width: int, module: Module, split: Split = "none") -> Part:
    """Return a vector."""
    return (Tensor(name, (width,), module, "vector", split),)


def norm(name: str, width: int, *, bias: bool = False) -> Part:
    """Return the weight of a norm, and the bias that LayerNorm has."""
    weight = vector(f"{name}.weight", width, "norm")
    return (*weight, *vector(f"{name}.bias", width, "norm")) if bias else weight


def norms(shape: Shape, *names: str, bias: bool = False) -> Part:
    """Return norms over the hidden size."""
    return tuple(tensor for name in names for tensor in norm(name, shape.hidden, bias=bias))


def embedding(name: str, rows: int, width: int, split: Split = "vocabulary") -> Part:
    """Return a lookup table, (rows, width)."""
    return (Tensor(f"{name}.weight", (rows, width), "embedding", "embedding", split, rows, width),)


def head(shape: Shape, name: str = "lm_head", *, bias: bool = False) -> Part:
    """Return the matrix of the logits. A tied head has no matrix, only the bias."""
    if not shape.tied:
        return linear(name, shape.hidden, shape.vocabulary, "head", "vocabulary", bias=bias)
    return linear_bias(name, shape.vocabulary, "head", "vocabulary") if bias else ()


def attention(
    s: Shape,
    names: Iterable[str] = (*LLAMA_QKV, "self_attn.o_proj"),
    *,
    bias: bool = False,
    out_bias: bool = False,
) -> Part:
    """Return the matrices of queries, keys, values and output; `names` has this order."""
    query, key, value, out = names
    return (
        *linear(query, s.hidden, s.query_width, "attention", "columns", bias=bias),
        *linear(key, s.hidden, s.kv_width, "attention", "columns", bias=bias),
        *linear(value, s.hidden, s.kv_width, "attention", "columns", bias=bias),
        *linear(out, s.query_width, s.hidden, "attention", "rows", bias=out_bias),
    )


def fused_attention(
    s: Shape,
    qkv: str = "self_attention.query_key_value",
    out: str = "self_attention.dense",
    *,
    bias: bool = False,
    out_bias: bool = False,
) -> Part:
    """Return one matrix of queries, keys and values, and the output matrix."""
    width = s.query_width + 2 * s.kv_width
    return (
        *linear(qkv, s.hidden, width, "attention", "columns", bias=bias),
        *linear(out, s.query_width, s.hidden, "attention", "rows", bias=out_bias),
    )


def head_norms(width: int, key_width: int = 0) -> Part:
    """Return the norms of queries and keys; `width` is a head, or all query heads."""
    return (*norm("self_attn.q_norm", width), *norm("self_attn.k_norm", key_width or width))


def gated_mlp(hidden: int, ffn: int, name: str = "mlp", *, bias: bool = False) -> Part:
    """Return the gate, up and down matrices, named as in Llama."""
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
