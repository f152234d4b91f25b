"""What mixes tokens without attention scores: linear attention, state spaces, short convolutions.

Each kind has two ways to run. The kernels (flash-linear-attention, mamba-ssm, causal-conv1d), which
training on a GPU needs, compute again in backward what they do not keep. Without these packages,
and with eager attention here, transformers' own operations in torch keep every tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tokmill.bill.activations.part import (
    GRADIENT_RESIDUAL,
    HOOKS,
    Part,
    Rows,
    inputs,
    kept,
    norm,
)
from tokmill.bill.activations.situation import Situation
from tokmill.bill.formula import Formula
from tokmill.bill.models.model import Block, BlockKind
from tokmill.bill.states.optimizers import FP32_BYTES

FLA = "save_for_backward of flash-linear-attention's chunk_gated_delta_rule and chunk_kda"
MAMBA = "save_for_backward of mamba-ssm's mamba_split_conv1d_scan_combined and mamba_inner_fn"
BY_CODE = "by the code; not measured on a GPU"
TORCH = f"{HOOKS}: its operations in torch"


def _by_code(name: str, expression: str, source: str) -> Formula:
    return Formula(name, expression, source, BY_CODE)


def _torch(name: str, expression: str, error: str = "within 1% of a layer") -> Formula:
    return Formula(name, expression, TORCH, error)


CONVOLVED = kept("convolution: its input", "q * (2 * a_k * d_k + a_v * d_v)")
DELTA_GATES = kept("delta rule: decay and strength of each head", "(8 + q) * a_v")
CHANNEL_GATES = kept(
    "delta rule: decay of each channel, strength of each head", "8 * a_v * d_k + (4 + q) * a_v"
)
DELTA = _by_code(
    "delta rule: queries, keys, values, decay, and the triangle of each 64 tokens",
    "q * (2 * a_k * d_k + a_v * d_v) + 8 * a_k + (4 + 64 * q) * a_v", FLA,
)  # fmt: skip
CHANNEL_DELTA = _by_code(
    "delta rule by channel: queries, keys, values, decay, and two triangles of each 64 tokens",
    "q * (2 * a_k * d_k + a_v * d_v) + 8 * a_k + 4 * a_v * d_k + 128 * q * a_v", FLA,
)  # fmt: skip
DELTA_NORM = kept("norm with a gate behind linear attention", "(12 + q) * a_v * d_v + 4 * a_v")
DELTA_NORM_TRAINED = kept(
    "norm with a gate: normalized input, for its weight; input of the last matrix",
    "2 * q * a_v * d_v",
)
GRADIENT_DELTA = _by_code(
    "gradients and states of the delta rule",
    "q * a_v * (2 * d_k * d_v / 64 + 4 * d_k + 4 * d_v)", FLA,
)  # fmt: skip
DELTA_TORCH = _torch(
    "delta rule in torch: all tensors of each 64 tokens, in fp32",
    "(q * (2 * a_k * d_k + a_v * d_v) * (s + w - 1) / s"
    " + 4 * a_v * (8 * d_k + 3 * d_v + 320 + 6 + d_k * d_v / 64) * ceil(s / 64) * 64 / s)",
)
DELTA_TORCH_FP32 = _torch(
    "delta rule in torch, on fp32: transposed copies of queries and keys", "14 * a_v * d_k"
)
CHANNEL_DELTA_TORCH = _torch(
    "delta rule by channel in torch: all tensors of each 64 tokens, in fp32",
    "(q * (2 * a_k * d_k + a_v * d_v) * (s + w - 1) / s"
    " + a_v * (5980 + 832 * d_k + d_k * d_v / 16) * ceil(s / 64) * 64 / s)",
)
GRADIENT_DELTA_TORCH = _torch(
    "gradients inside the delta rule in torch", "4 * a_v * (128 + 4 * d_k + 4 * d_v)"
)

MAMBA_2 = _by_code(
    "state space: input of the kernel, its output before the norm",
    "q * (3 * c + 2 * G * N + a_m) + 4 * G", MAMBA,
)  # fmt: skip
GRADIENT_MAMBA_2 = _by_code(
    "state space: gradients, convolution and states made again",
    "q * (7 * c + 6 * G * N + 2 * a_m) + 8 * c * N / s_chunk", MAMBA,
)  # fmt: skip
MAMBA_2_TORCH = _torch(
    "state space in torch: all tensors of each chunk, in fp32",
    "q * (2 * c + 2 * G * N + a_m) + q * (c + 2 * G * N) * (s + w - 1) / s + 2 * q * a_m"
    " + 20 * c * ceil(s / s_chunk) * s_chunk / s"
    " + 4 * a_m * (3 * s_chunk + 5 * N + 4) * ceil(s / s_chunk) * s_chunk / s"
    " + 4 * c * N * (2 * ceil(s / s_chunk) + 1) / s",
)
MAMBA_2_AUTOCAST = _torch(
    "state space in torch under autocast: inputs of products in 16 bit, the rest in fp32",
    "q * (c + 2 * G * N) * (2 * s + w - 1) / s + 2 * q * a_m"
    " + 14 * c * ceil(s / s_chunk) * s_chunk / s"
    " + a_m * (8 * s_chunk + 12 * N + 16) * ceil(s / s_chunk) * s_chunk / s"
    " + 2 * c * N * (2 * ceil(s / s_chunk) + 1) / s",
)
MAMBA_2_NORM = _torch("gate and norm behind a state space", "20 * c + 4 * G")
MAMBA_2_GATE = _torch("gate behind a state space", "12 * c")
MAMBA_2_LAST = kept("last matrix of a state space: its input", "q * c")
GRADIENT_MAMBA_2_TORCH = _torch(
    "gradients inside a state space in torch", "8 * a_m * s_chunk + 2 * c"
)

MAMBA_1 = _by_code(
    "state space: input of the kernel, step, B, C, states of each 2,048 tokens, and output",
    "q * (3 * c + r_dt + 4 * N) + 8 * c * N / 2048", MAMBA,
)  # fmt: skip
MAMBA_1_NORMS = _by_code(
    "state space with norms of step, B and C: inputs and outputs of each operation",
    "q * (6 * c + 2 * r_dt + 4 * N) + 4 * (r_dt + 2 * N) + 8 * c * N / 2048", MAMBA,
)  # fmt: skip
GRADIENT_MAMBA_1 = _by_code("state space: gradients, convolution made again", "5 * q * c", MAMBA)
MAMBA_1_TORCH = _torch(
    "state space in torch: the state of each token",
    "q * (8 + (s + w - 1) / s) * c + 8 * c + q * (r_dt + 2 * N) + 4 * N"
    " + (12 + min(q, 4 - q)) * c * N",
)
GRADIENT_MAMBA_1_TORCH = _torch("gradients inside a state space in torch", "8 * c * N")

SHORT = kept("short convolution: its input and gates, and the product with the first", "4 * q * c")
SHORT_OUTPUT = kept("short convolution: its output", "q * c * (s + w - 1) / s")
SHORT_LAST = kept("short convolution: input of the last matrix", "q * c")
GRADIENT_SHORT = kept("gradients inside a short convolution", "5 * q * c")

RWKV = _by_code(
    "RWKV-7: six mixed inputs, receptance, decay, keys, values, rates, gate, output, and the "
    "triangles of each 64 tokens",
    "q * a * (18 * h + 256) + 8 * a * h",
    "save_for_backward of flash-linear-attention's chunk_rwkv7",
)
GRADIENT_RWKV = _by_code(
    "gradients and states of RWKV-7", "q * a * (2 * h * h / 64 + 8 * h)", RWKV.source
)
LIGHTNING = kept(
    "lightning attention: its input, copies for each block of tokens, scores and state of a block",
    "q * a * (9 * h + s_block + h * h / s_block) + (4 + 2 * q) * a * h + 4",
)
LIGHTNING_TRAINED = kept(
    "lightning attention: normalized output, and input of the last matrix", "2 * q * a * h"
)
GRADIENT_LIGHTNING = kept("gradients inside lightning attention", "q * a * (6 * h + s_block)")


def mixer(facts: Situation, block: Block) -> Part:
    """Return the part of a layer that mixes tokens without attention."""
    saved, gradients = MIXERS[block.kind](facts, block)
    before = () if "beside" in block.traits else norm(facts)
    rows = (*before, *inputs(facts, block.reads), *saved)
    return Part(
        NAMES[block.kind], "mixer", rows, rows, (GRADIENT_RESIDUAL, gradients), block.layers
    )


def _delta(facts: Situation, block: Block) -> tuple[Rows, Formula]:
    by_channel = "channels" in block.traits
    behind = (DELTA_NORM, *((DELTA_NORM_TRAINED,) if facts.trained else ()))
    gates = CHANNEL_GATES if by_channel else DELTA_GATES
    if facts.eager:
        in_torch: Rows = (CHANNEL_DELTA_TORCH if by_channel else DELTA_TORCH,)
        if facts.product == FP32_BYTES and not by_channel:
            in_torch = (*in_torch, DELTA_TORCH_FP32)
        return (CONVOLVED, gates, *in_torch, *behind), GRADIENT_DELTA_TORCH
    return (CONVOLVED, gates, CHANNEL_DELTA if by_channel else DELTA, *behind), GRADIENT_DELTA


def _mamba_2(facts: Situation, block: Block) -> tuple[Rows, Formula]:
    if not facts.eager:
        return (MAMBA_2,), GRADIENT_MAMBA_2
    behind = MAMBA_2_GATE if "no norm" in block.traits else MAMBA_2_NORM
    last = (MAMBA_2_LAST,) if facts.trained else ()
    scan = MAMBA_2_AUTOCAST if facts.autocast else MAMBA_2_TORCH
    return (scan, behind, *last), GRADIENT_MAMBA_2_TORCH


def _mamba_1(facts: Situation, block: Block) -> tuple[Rows, Formula]:
    if facts.eager:
        return (MAMBA_1_TORCH,), GRADIENT_MAMBA_1_TORCH
    return (MAMBA_1_NORMS if "norms" in block.traits else MAMBA_1,), GRADIENT_MAMBA_1


def _short(facts: Situation, block: Block) -> tuple[Rows, Formula]:
    last = (SHORT_LAST,) if facts.trained else ()
    return (SHORT, SHORT_OUTPUT, *last), GRADIENT_SHORT


def _lightning(facts: Situation, _: Block) -> tuple[Rows, Formula]:
    behind = (LIGHTNING_TRAINED,) if facts.trained else ()
    return (LIGHTNING, *behind), GRADIENT_LIGHTNING


def _rwkv(_: Situation, __: Block) -> tuple[Rows, Formula]:
    return (RWKV,), GRADIENT_RWKV


MIXERS: Mapping[BlockKind, Callable[[Situation, Block], tuple[Rows, Formula]]] = {
    "delta": _delta,
    "lightning": _lightning,
    "rwkv": _rwkv,
    "mamba": _mamba_1,
    "mamba-2": _mamba_2,
    "convolution": _short,
}
WITH_KERNELS = ("delta", "mamba", "mamba-2")
"""Kinds that packages with kernels compute in another way than transformers."""
NAMES: Mapping[BlockKind, str] = {
    "delta": "linear attention",
    "lightning": "linear attention",
    "rwkv": "linear attention",
    "mamba": "state space",
    "mamba-2": "state space",
    "convolution": "short convolution",
}
