"""Norms: of the residual, of queries and keys, and before the head."""

from __future__ import annotations

from tokmill.bill.activations.part import EXACT, HOOKS, IDS, STEPS, Rows, kept
from tokmill.bill.activations.situation import Situation
from tokmill.bill.formula import Formula
from tokmill.bill.states.optimizers import FP32_BYTES

RMS_INPUT = kept("RMSNorm: input in fp32", "4 * d")
RMS_INVERSE = kept("RMSNorm: 1/rms in fp32", "4")
RMS_RESIDUAL = kept("RMSNorm: normalized input, for the gradient of its weight", "x * d")
RMS_ORIGINAL = kept("RMSNorm of T5: input in 16 bit beside the fp32 copy", "x * d")
RMS_FP32 = kept(
    "RMSNorm with its weight in fp32 (Gemma, OLMo-2): normalized input in fp32", "4 * d"
)
RMS_HEADS = kept(
    "RMSNorm of each query and key: inputs in fp32, and 1/rms", "4 * (a + k) * h + 4 * (a + k)"
)
RMS_QUERY_KEY = kept(
    "RMSNorm of all queries and all keys: inputs in fp32, and 1/rms", "4 * (a + k) * h + 8"
)
NORMED_HEADS = kept("normalized queries and keys", "q * (a + k) * h")
NORMED_HEADS_FP32 = kept("normalized queries and keys in fp32 (Gemma, OLMo-2)", "4 * (a + k) * h")
LAYER_NORM = kept("LayerNorm: its input", "x * d")
LAYER_NORM_STATISTICS = Formula(
    "LayerNorm: mean and 1/deviation", "8", HOOKS, "fp32 on a GPU; of the input's type on a CPU"
)
GRADIENT_NORM = Formula("gradients inside an RMSNorm, five in fp32", "20 * d", STEPS, EXACT)
GRADIENT_LAYER_NORM = Formula("gradients before and after a LayerNorm", "2 * x * d", STEPS, EXACT)


def norm(at: Situation, *, shared: bool = False) -> Rows:
    """Return the rows of a norm of width d; `shared`: another norm keeps its input already."""
    if at.style.norm == "layer":
        return LAYER_NORM_STATISTICS, *(() if shared else (LAYER_NORM,))
    result = RMS_FP32 if at.style.norm == "rms32" else RMS_RESIDUAL
    twice = at.style.norm == "t5" and at.residual < FP32_BYTES
    return (
        RMS_INPUT,
        RMS_INVERSE,
        *((RMS_ORIGINAL,) if twice else ()),
        *((result,) if at.trained else ()),
    )


def head_norms(at: Situation) -> Rows:
    """Return the rows of norms of queries and keys."""
    inputs = {"": None, "each": RMS_HEADS, "all": RMS_QUERY_KEY}[at.style.heads]
    result = NORMED_HEADS_FP32 if at.style.norm == "rms32" else NORMED_HEADS
    return (inputs, *((result,) if at.trained else ())) if inputs else ()


def final_norm(at: Situation) -> tuple[Rows, Rows]:
    """Return the rows that are kept in the backward of the final norm, and its gradients."""
    if at.style.norm == "layer":
        return (IDS, *norm(at)), (GRADIENT_LAYER_NORM,)
    return (IDS, RMS_INPUT, RMS_INVERSE), (GRADIENT_NORM,)
