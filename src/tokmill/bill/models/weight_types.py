"""Bytes per weight of each weight type, for inference and for frozen weights under adapters."""

from __future__ import annotations

from tokmill.bill.models.adapters import is_plain_linear
from tokmill.bill.models.gguf import FILES, gguf_bytes
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
