"""Activation checkpointing: what stands of a layer whose activations are computed again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.bill.activations.attention import LOG_SUM_EXP, RESULT
from tokmill.bill.activations.part import kept
from tokmill.bill.formula import Formula

if TYPE_CHECKING:
    from tokmill.bill.activations.part import Rows
    from tokmill.bill.activations.situation import Situation

CHECKPOINTS = Formula(
    "activations: inputs of checkpointed layers", "n * layers_kept * x * d / u",
    "torch.utils.checkpoint, not reentrant; seen on fake tensors",
    "exact; with sequence parallelism not measured",
)  # fmt: skip
MASK_HELD = kept("eager attention, checkpointed: one mask for all layers", "x * s")
MASK_HELD_BOOL = kept("sdpa with a mask, checkpointed: one mask for all layers", "s")

TORCHTITAN = "torchtitan's policy for operations: attention's result and every second product"
LAYER_INPUT = Formula("selective checkpointing: the layer's input", "x * d", TORCHTITAN)
PRODUCTS_GATED = Formula(
    "selective: products of q, v, gate and down", "q * (a * h + k * h + f + d)", TORCHTITAN,
    "82.4 GiB published for Llama-3.1-8B on 8 GPUs: 15 % below",
)  # fmt: skip
PRODUCTS_PLAIN = Formula(
    "selective: products of q, v and up", "q * (a * h + k * h + f)", TORCHTITAN, "not measured"
)
PRODUCTS_FUSED = Formula(
    "selective: products of qkv and up", "q * ((a + 2 * k) * h + f)", TORCHTITAN, "not measured"
)
PRODUCTS_FUSED_GATED = Formula(
    "selective: products of qkv, and of fused gate and up", "q * ((a + 2 * k) * h + 2 * f)",
    TORCHTITAN, "not measured",
)  # fmt: skip
PRODUCTS_FUSED_QKV = Formula(
    "selective: products of qkv, gate and down", "q * ((a + 2 * k) * h + f + d)", TORCHTITAN,
    "not measured",
)  # fmt: skip


def held_mask(at: Situation) -> Rows:
    """Return the mask that checkpointed layers hold, once for all of them."""
    if at.eager:
        return (MASK_HELD,)
    return (MASK_HELD_BOOL,) if at.masked else ()


def selective_rows(at: Situation) -> Rows:
    """Return what a layer keeps under torchtitan's policy; the rest is computed again."""
    kernel = () if at.eager else (RESULT, LOG_SUM_EXP)
    products = {
        (3, True): PRODUCTS_GATED,
        (3, False): PRODUCTS_PLAIN,
        (1, True): PRODUCTS_FUSED_QKV,
        (1, False): PRODUCTS_FUSED,
    }[at.style.inputs[0], at.style.gated]
    if at.style.inputs == (1, 1) and at.style.gated:
        products = PRODUCTS_FUSED_GATED
    return LAYER_INPUT, *kernel, products
