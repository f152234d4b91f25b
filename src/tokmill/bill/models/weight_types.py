"""Bytes per weight of each weight type, for inference and for frozen weights under adapters."""

from __future__ import annotations

from typing import NamedTuple

from tokmill.bill.models.adapters import is_plain_linear
from tokmill.bill.models.model import Model, Tensor

PLAIN_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0}

MATRIX_BYTES = {
    "fp8": 1 + 4 / 128**2,
    "int8": 1.0,
    "int4": 0.5 + (2 + 0.5) / 128,
    "nf4": 0.5 + 4 / 64,
    "nf4-double": 0.5 + 1 / 64 + 4 / (64 * 256),
    "mxfp4": 0.5 + 1 / 32,
}
"""Bytes per element of a quantized matrix with its scales, but without those of int8, which depend
on the shape. Embedding, head, routers, norms and biases stay in 16 bit."""


class FileBits(NamedTuple):
    """Bits per weight in a GGUF file of llama.cpp, with scales, by the use of a matrix.

    llama-quantize gives matrices of values and those out of a layer larger types in some layers
    (src/llama-quant.cpp at 007dbbf, without an importance matrix): the mean over 32 layers is here.
    """

    usual: float
    values: float
    down: float  # out of the feed-forward layer
    out: float  # out of attention
    uneven: float  # in rows that are not a multiple of 256 weights
    uneven_mixed: float  # the same, of values and out of the feed-forward layer
    head: float = 6.5625  # q6_k; a tied embedding too


FILES = {
    "q4_0": FileBits(4.5, 4.5, 4.5, 4.5, 4.5, 4.5),
    "q4_1": FileBits(5, 5, 5, 5, 5, 5),
    "q5_0": FileBits(5.5, 5.5, 5.5, 5.5, 5.5, 5.5),
    "q5_1": FileBits(6, 6, 6, 6, 6, 6),
    "q8_0": FileBits(8.5, 8.5, 8.5, 8.5, 8.5, 8.5, head=8.5),
    "q2_k": FileBits(2.625, 4.5, 3.4375, 3.4375, 4.5, 4.5),
    "q3_k_m": FileBits(3.4375, 4.5625, 4.5625, 4.5, 4.5, 5.53125),
    "q4_k_s": FileBits(4.5, 4.625, 4.625, 4.5, 5.5, 5.5625),
    "q4_k_m": FileBits(4.5, 5.53125, 5.53125, 4.5, 5.5, 7),
    "q5_k_s": FileBits(5.5, 5.5, 5.5, 5.5, 6, 6),
    "q5_k_m": FileBits(5.5, 6.03125, 6.03125, 5.5, 6, 7.25),
    "q6_k": FileBits(6.5625, 6.5625, 6.5625, 6.5625, 8.5, 8.5),
}
_VALUES = ("v_proj", "qkv_proj", "query_key_value", "c_attn", "W_pack", "kv_b_proj")
"""Ends of names of matrices that make values, or values and more."""
_BLOCK = 256
_EIGHT_EXPERTS = 8
"""llama.cpp gives larger types to attention in models with 8 experts."""

NOTES = {
    "fp8": "1 byte, and an fp32 scale per 128 x 128 (DeepSeek-V3's files)",
    "int8": "1 byte, and an fp32 scale per row (bitsandbytes' LLM.int8)",
    "int4": "4 bits, and a 16-bit scale and a 4-bit zero per 128 (GPTQ, AWQ)",
    "nf4": "4 bits, and an fp32 scale per 64 (bitsandbytes)",
    "nf4-double": "4 bits, and a byte per 64 with an fp32 scale per 256 bytes (bitsandbytes)",
    "mxfp4": "4 bits, and an 8-bit scale per 32 (OCP MX); in a mixture only experts (gpt-oss)",
    **dict.fromkeys(FILES, "GGUF file: blocks of llama.cpp, embedding and head quantized too"),
}


def is_matrix(tensor: Tensor) -> bool:
    """Return whether tools quantize a tensor: a matrix in a layer, or stacked experts."""
    return is_plain_linear(tensor) or (tensor.kind == "experts" and tensor.n_in > 0)


def weight_bytes(kind: str, tensor: Tensor, model: Model) -> float:
    """Return the bytes per element of a tensor, scales included."""
    if kind in PLAIN_BYTES:
        return PLAIN_BYTES[kind]
    if kind in FILES:
        return gguf_bytes(kind, tensor, model)
    left_out = kind == "mxfp4" and model.experts is not None and tensor.kind != "experts"
    if left_out or not is_matrix(tensor):
        return PLAIN_BYTES["bf16"]
    rows = 4 / tensor.n_in if kind == "int8" and tensor.n_in else 0.0
    return MATRIX_BYTES[kind] + rows


def gguf_bytes(file: str, tensor: Tensor, model: Model) -> float:
    """Return the bytes per element of a tensor in a GGUF file.

    Embedding and head are quantized too; norms, biases, routers and learned positions are fp32.
    """
    is_positions = tensor.kind == "embedding" and tensor.split != "vocabulary"
    is_vector = tensor.kind == "vector" or (tensor.kind == "experts" and not tensor.n_in)
    if is_vector or tensor.module == "router" or is_positions:
        return 4.0
    bits, row = FILES[file], tensor.n_out if tensor.kind == "embedding" else tensor.n_in
    is_attention, is_last = tensor.module == "attention", tensor.split == "rows"
    leaf = tensor.name.removesuffix(".weight").rpartition(".")[2]
    mixed = leaf in _VALUES or (is_last and not is_attention)
    if tensor.module == "head" or (tensor.module == "embedding" and model.tied):
        return (8.5 if row % _BLOCK else bits.head) / 8
    if row % _BLOCK:
        return (bits.uneven_mixed if mixed else bits.uneven) / 8
    if model.experts is not None and model.experts.count == _EIGHT_EXPERTS:
        if leaf in ("k_proj", "v_proj"):
            return 8.5 / 8
        bits = bits._replace(out=max(bits.usual, 5.5))
    if file == "q2_k" and model.attention.heads < 4 * model.attention.kv_heads:
        bits = bits._replace(values=bits.down)
    if is_last:
        return (bits.out if is_attention else bits.down) / 8
    return (bits.values if mixed else bits.usual) / 8
