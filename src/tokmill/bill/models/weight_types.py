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
_Q8_0_BITS, _Q5_K_BITS = 8.5, 5.5
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
    if _is_fp32_in_file(tensor):
        return 4.0
    return _gguf_bits(file, tensor, model) / 8


def _is_fp32_in_file(tensor: Tensor) -> bool:
    """Return whether a GGUF file keeps a tensor in fp32: it is small, or decides much."""
    if tensor.kind == "vector" or tensor.module == "router":
        return True
    if tensor.kind == "experts":
        return not tensor.n_in  # their biases
    return tensor.kind == "embedding" and tensor.split != "vocabulary"  # learned positions


def _gguf_bits(file: str, tensor: Tensor, model: Model) -> float:
    """Return the bits per element of a quantized tensor in a GGUF file, as llama.cpp chooses."""
    bits = FILES[file]
    is_attention = tensor.module == "attention"
    is_output = tensor.split == "rows"  # the last matrix of attention, or of the MLP
    leaf = tensor.name.removesuffix(".weight").rpartition(".")[2]
    is_mixed = leaf in _VALUES or (is_output and not is_attention)
    row = tensor.n_out if tensor.kind == "embedding" else tensor.n_in
    is_uneven = row % _BLOCK != 0  # rows that are no whole blocks have another type
    if tensor.module == "head" or (tensor.module == "embedding" and model.tied):
        return _Q8_0_BITS if is_uneven else bits.head
    if is_uneven:
        return bits.uneven_mixed if is_mixed else bits.uneven
    has_eight_experts = model.experts is not None and model.experts.count == _EIGHT_EXPERTS
    if has_eight_experts and leaf in ("k_proj", "v_proj"):
        return _Q8_0_BITS
    if is_output and is_attention:
        return max(bits.usual, _Q5_K_BITS) if has_eight_experts else bits.out
    if is_output:
        return bits.down
    if not is_mixed:
        return bits.usual
    # Values that four heads or more share are few, and get more bits.
    if file == "q2_k" and model.attention.heads < 4 * model.attention.kv_heads:
        return bits.down
    return bits.values
