"""GGUF files of llama.cpp: bytes per weight in each block type, and the type of each tensor.

A file is named after the type of most tensors. llama-quantize gives some tensors a larger type, by
use and layer (src/llama-quant.cpp at 007dbbf, without an importance matrix). Embedding and head are
quantized too; norms, biases, routers and learned positions stay in fp32.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from tokmill.bill.models.model import Model, Tensor

BLOCKS = {
    "q4_0": (32, 18), "q4_1": (32, 20), "q5_0": (32, 22), "q5_1": (32, 24), "q8_0": (32, 34),
    "q2_k": (256, 84), "q3_k": (256, 110), "q4_k": (256, 144), "q5_k": (256, 176),
    "q6_k": (256, 210),
}  # fmt: skip
"""Weights and bytes of a block, with its scales (ggml/src/ggml-common.h)."""

UNEVEN = {"q2_k": "q4_0", "q3_k": "q4_0", "q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}
"""The type of a matrix whose rows are not a multiple of 256 weights."""

FILES = {
    "q4_0": "q4_0", "q4_1": "q4_1", "q5_0": "q5_0", "q5_1": "q5_1", "q8_0": "q8_0",
    "q2_k": "q2_k", "q3_k_m": "q3_k", "q4_k_s": "q4_k", "q4_k_m": "q4_k", "q5_k_s": "q5_k",
    "q5_k_m": "q5_k", "q6_k": "q6_k",
}  # fmt: skip
"""Names of files, and the type of most of their tensors."""

_VALUES = ("v_proj", "qkv_proj", "query_key_value", "c_attn", "W_pack", "kv_b_proj")
"""Ends of names of matrices that make values, or values and more."""
_EIGHT_EXPERTS = 8
"""llama.cpp has special rules for models with 8 experts."""


def gguf_bytes(file: str, tensor: Tensor, model: Model) -> float:
    """Return the bytes per element of a tensor in a file, averaged over its layers."""
    is_positions = tensor.kind == "embedding" and tensor.split != "vocabulary"
    is_vector = tensor.kind == "vector" or (tensor.kind == "experts" and not tensor.n_in)
    if is_vector or tensor.module == "router" or is_positions:
        return 4.0
    attention, experts = model.attention, model.experts
    rules = Rules(
        file,
        model.layers,
        shares_values=attention.heads >= 4 * attention.kv_heads,
        eight_experts=experts is not None and experts.count == _EIGHT_EXPERTS,
    )
    return _mean_bytes(rules, _use(tensor, model), _row(tensor), tensor.layers or (0,))


class Rules(NamedTuple):
    """The name of a file and the model's shape: they decide the types of its tensors."""

    file: str
    layers: int
    shares_values: bool
    eight_experts: bool


@cache
def _mean_bytes(rules: Rules, use: str, row: int, layers: tuple[int, ...]) -> float:
    return sum(_block_bytes(_type(rules, use, row, at), row) for at in layers) / len(layers)


def _row(tensor: Tensor) -> int:
    """Return the weights in a row; blocks split rows."""
    return tensor.n_out if tensor.kind == "embedding" else tensor.n_in


def _block_bytes(block: str, row: int) -> float:
    weights, n_bytes = BLOCKS[block]
    if row % weights:
        return _block_bytes(UNEVEN[block], row) if block in UNEVEN else 2.0
    return n_bytes / weights


def _type(rules: Rules, use: str, row: int, layer: int) -> str:
    """Return the type of a tensor in one layer."""
    usual = FILES[rules.file]
    if use == "head":
        return "q8_0" if usual == "q8_0" or row % BLOCKS[usual][0] else "q6_k"
    if rules.eight_experts:
        if use in ("key", "value"):
            return "q8_0"
        if use == "out":
            return "q5_k" if usual in ("q2_k", "q3_k", "q4_k") else usual
    return _by_use(rules, use, layer) or usual


def _use(tensor: Tensor, model: Model) -> str:
    leaf = tensor.name.removesuffix(".weight").rpartition(".")[2]
    if tensor.module == "head" or (tensor.module == "embedding" and model.tied):
        return "head"
    if tensor.module == "attention":
        named = "value" if leaf in _VALUES else "key" if leaf == "k_proj" else ""
        return "out" if tensor.split == "rows" else named
    return "down" if tensor.split == "rows" else ""


def _by_use(rules: Rules, use: str, layer: int) -> str:
    """Return the type by the rules of a file, '' for the usual one."""
    n, eighth = rules.layers, rules.layers // 8
    more = layer < eighth or layer >= 7 * n // 8 or (layer - eighth) % 3 == 2
    match rules.file, use:
        case (("q4_k_m" | "q5_k_m"), ("value" | "down")):
            return "q6_k" if more else ""
        case "q4_k_s", "value":
            return "q5_k" if layer < 4 else ""
        case "q4_k_s", "down":
            return "q5_k" if layer < eighth else ""
        case "q3_k_m", "value":
            return "q5_k" if layer < 2 else "q4_k"
        case "q3_k_m", "down":
            return "q5_k" if layer < n // 16 else "q4_k"
        case "q3_k_m", "out":
            return "q4_k"
        case "q2_k", "value":
            return "q4_k" if rules.shares_values else "q3_k"
        case "q2_k", ("down" | "out"):
            return "q3_k"
    return ""
