"""Parts of models as tensors: matrices, norms, attention, feed-forward layers, experts.

Names are those inside a layer; `in_layers` repeats parts in layers. The split is Megatron-LM's
tensor parallelism: matrices into attention or a feed-forward layer by output features (columns),
matrices out of it by input features (rows), embedding and head by ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tokmill.bill.models.family import Shape
from tokmill.bill.models.model import Module, Split, Tensor

Part = tuple[Tensor, ...]


def in_layers(prefix: str, layers: Iterable[int], part: Part) -> Part:
    """Return the tensors of a part, repeated in `layers` under `prefix`."""
    numbers = tuple(layers)
    return tuple(
        replace(t, name=f"{prefix}.{{}}.{t.name}", layers=numbers) for t in part if numbers
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
    bias_split: Split = "none" if split == "rows" else split
    return (weight, *vector(f"{name}.bias", n_out, module, bias_split)) if bias else (weight,)


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
    return vector(f"{name}.bias", shape.vocabulary, "head", "vocabulary") if bias else ()


def attention(
    s: Shape,
    qkv: Sequence[str],
    out: str,
    *,
    bias: bool = False,
    out_bias: bool = False,
    transposed: bool = False,
) -> Part:
    """Return the matrices of queries, keys, values (or one of all three), and output."""
    widths = [s.query_width, s.kv_width, s.kv_width]
    widths = widths if len(qkv) > 1 else [sum(widths)]
    into = (
        linear(name, s.hidden, width, "attention", "columns", bias=bias, transposed=transposed)
        for name, width in zip(qkv, widths, strict=True)
    )
    return (
        *(tensor for matrix in into for tensor in matrix),
        *linear(
            out, s.query_width, s.hidden, "attention", "rows", bias=out_bias, transposed=transposed
        ),
    )


def feed_forward(
    hidden: int,
    ffn: int,
    up: Iterable[str],
    down: str,
    *,
    fused: bool = False,
    bias: bool = False,
    transposed: bool = False,
) -> Part:
    """Return the matrices into and out of a feed-forward layer; `fused`: one is gate and up."""
    width = 2 * ffn if fused else ffn
    into = (
        linear(name, hidden, width, "mlp", "columns", bias=bias, transposed=transposed)
        for name in up
    )
    return (
        *(tensor for matrix in into for tensor in matrix),
        *linear(down, ffn, hidden, "mlp", "rows", bias=bias, transposed=transposed),
    )
