"""Attention: FlashAttention and sdpa, with and without grouped heads or a mask, eager, and MLA."""

from __future__ import annotations

from tokmill.bill.activations.part import (
    GRADIENT_RESIDUAL,
    INPUT,
    LAYER_NORM,
    RMS_INPUT,
    STEPS,
    Part,
    Rows,
    adapter_rows,
    dropout,
    head_norms,
    in_passing,
    inputs,
    kept,
    norm,
)
from tokmill.bill.activations.situation import Situation
from tokmill.bill.formula import Formula
from tokmill.bill.models.model import Block
from tokmill.bill.states.optimizers import FP32_BYTES

QUERY = kept("attention: queries", "q * a * h")
KEY = kept("attention: keys", "q * k * h")
VALUE = kept("attention: values", "q * k * h")
REPEATED = kept("attention: keys and values repeated for every query head", "2 * q * a * h")
FUSED = kept(
    "attention: queries, keys and values in one tensor (fused projection)", "q * (a + 2 * k) * h"
)
RESULT = kept("attention: its output", "q * a * h")
ATTENDED = kept("output layer of attention: its input", "q * a * h")
LOG_SUM_EXP = kept("flash attention: log-sum-exp", "4 * a")
MASK = kept("sdpa with a mask: the mask in the queries' type", "q * s")
GRADIENT_HEADS = Formula(
    "gradients of queries, keys, values and attention output",
    "q * (2 * a + 2 * k) * h", STEPS, "a kernel may take some more",
)  # fmt: skip

SCORES = kept("eager attention: softmax in fp32", "4 * a * s")
SCORES_CAST = kept("eager attention: softmax in 16 bit", "q * a * s")
SOFT_CAP = kept("eager attention: tanh of the capped scores", "q * a * s")
SCORES_DROPOUT = Formula(
    "eager attention: mask of dropout", "a * s", "torch's native_dropout on CUDA: a byte each",
    "formula; a CPU keeps masks of the scores' type",
)  # fmt: skip
SCORES_DROPPED = Formula(
    "eager attention: softmax after dropout in fp32", "4 * a * s", "as SCORES_DROPOUT", "formula"
)
GRADIENT_SCORES = in_passing("gradients before and after softmax in fp32", "8 * a * s")
GRADIENT_SCORES_Q = in_passing("gradients before and after softmax", "2 * q * a * s")

POSITION_BIAS = Formula(
    "sdpa with learned positions: their biases in the queries' type, and the causal mask",
    "(q * a + 1) * s / b", "read from transformers 5.23 and torch's efficient attention",
    "not measured: a CPU keeps the scores",
)  # fmt: skip
POSITION_BIAS_MASK = Formula(
    "sdpa with learned positions and a mask of padding, for each sequence", "(q * a + 1) * s",
    "read from transformers 5.23 and torch's efficient attention",
    "not measured: a CPU keeps the scores",
)  # fmt: skip

LATENTS = Formula(
    "MLA: compressed queries, keys and values, and their norms in fp32",
    "(4 + 3 * q) * (r_kv + r_q) + q * r_rope",
    "read from transformers 5.23's DeepSeek-V3", "a layer is 4% below what a CPU's kernel keeps",
)  # fmt: skip
LATENT_HEADS = Formula(
    "MLA: queries and keys with rotary part, values, and the attention output",
    "2 * q * a * (h_nope + r_rope) + q * a * (h_nope + h_v) + 2 * q * a * h_v",
    "read from transformers 5.23's DeepSeek-V3", "a layer is 4% below what a CPU's kernel keeps",
)  # fmt: skip


LATENT_RANKS = kept(
    "MLA: compressed queries, keys and values, their norms in fp32, in fp32 the rotary part too",
    "(4 + 2 * q) * (r_kv + r_q) + 8 + (2 * q - 4) * r_rope",
)
LATENT_EAGER = kept(
    "MLA: queries and keys with rotary part, values, and the attention output, all eager",
    "2 * q * a * (h_nope + r_rope) + 2 * q * a * h_v",
)
GATE = kept("attention: gate of its output, and the output before it", "2 * q * a * h")
HEADS_WITHOUT_WEIGHT = kept(
    "norm of queries and keys without weights: inputs in fp32, and 1/rms",
    "4 * (a + k) * h + 4 * (a + k)",
)
VALUE_NORM = kept("norm of the values: inputs in fp32, and 1/rms", "4 * k * h + 4 * k")
SINKS = kept(
    "eager attention with sinks: places of the largest scores, and the sinks' share",
    "8 * a + q * a",
)


def attention(facts: Situation, block: Block) -> Part:
    """Return the part of a layer that attends, with its norms and projections."""
    style = facts.style
    first = norm(facts) if style.norms_before and "beside" not in block.traits else ()
    saved = (
        *first,
        *inputs(facts, block.reads or style.inputs[0]),
        *adapter_rows(facts, "attention", ATTENDED),
        *head_norms(facts),
        *(_eager(facts, block) if facts.eager else _kernel(facts, block)),
        *(norm(facts) if style.norms_after else ()),
        *dropout(facts),
    )
    left, gradients = _backward(facts, saved)
    return Part(
        "attention",
        "attention",
        saved,
        left,
        gradients,
        block.layers,
        shared=_own_input(facts),
        not_first=() if facts.trained else first,
    )


def cross_attention(facts: Situation, block: Block) -> Part:
    """Return the part of a decoder's layer that attends to the encoder.

    All layers read the encoder's output, which stands outside; of 16-bit copies each has two.
    """
    copies = inputs(facts, 2) if facts.own_copies else ()
    kernel = _eager(facts, block) if facts.eager else _kernel(facts, block)
    kernel = tuple(row for row in kernel if row is not POSITION_BIAS)  # one for all layers
    saved = (*norm(facts), *inputs(facts, 1), *copies, *kernel, *dropout(facts))
    left, gradients = _backward(facts, saved)
    return Part("cross-attention", "attention", saved, left, gradients, block.layers)


def _own_input(facts: Situation) -> Formula | None:
    """Return the row that is the layer's input itself."""
    if facts.style.norms_before == 0:
        return INPUT if facts.trained and not facts.own_copies else None
    if facts.style.norm == "layer":
        return LAYER_NORM
    return RMS_INPUT if facts.residual == FP32_BYTES else None


def _kernel(facts: Situation, block: Block) -> Rows:
    """Return the rows of a fused kernel: FlashAttention, or sdpa."""
    if block.kind == "latent":
        return LATENTS, LATENT_HEADS, LOG_SUM_EXP, *_gate(facts, block)
    grouped = block.sizes["k"] < block.sizes["a"]
    if "shared" in block.traits:
        heads: Rows = (QUERY,)
    elif "keys" in block.traits:
        heads = (QUERY, KEY)
    elif facts.style.repeated or (facts.masked and grouped):
        heads = (QUERY, REPEATED)
    elif facts.style.fused == "all":
        heads = (FUSED,)
    elif facts.style.fused == "value":
        heads = (QUERY, KEY, FUSED)
    else:
        heads = (QUERY, KEY, VALUE)
    gate = _gate(facts, block)
    copied = (ATTENDED,) if facts.trained and (facts.style.copied or gate) else ()
    return (*heads, RESULT, LOG_SUM_EXP, *copied, *gate, *_mask(facts))


def _gate(facts: Situation, block: Block) -> Rows:
    """Return the rows of a gate of attention's output."""
    gates = (GATE,) if "gate" in block.traits else ()
    heads = (HEADS_WITHOUT_WEIGHT,) if "norm without weight" in block.traits else ()
    return (*gates, *heads, *((VALUE_NORM,) if "value norm" in block.traits else ()))


def _mask(facts: Situation) -> Rows:
    if facts.style.position_bias:
        return (POSITION_BIAS_MASK if facts.masked else POSITION_BIAS,)
    return (MASK,) if facts.masked else ()


def _eager(facts: Situation, block: Block) -> Rows:
    if block.kind == "latent":
        return LATENT_RANKS, LATENT_EAGER, *_scores(facts)
    sinks = (SINKS,) if facts.style.sinks else ()
    attended = (ATTENDED,) if facts.trained else ()
    return QUERY, REPEATED, *attended, *_gate(facts, block), *_scores(facts), *sinks


def _scores(facts: Situation) -> Rows:
    """Return the rows of what grows with the square of the sequence."""
    wide = facts.product == FP32_BYTES
    softmax: Rows = (SCORES,) if wide else (SCORES_CAST,)
    if _softmax_is_cast(facts):
        softmax = (SCORES, SCORES_CAST)
    dropped = (SCORES_DROPOUT, *((SCORES_DROPPED,) if wide else ()))
    return (
        *((SOFT_CAP,) if facts.style.soft_cap else ()),
        *softmax,
        *(dropped if facts.model.attention_dropout else ()),
    )


def _softmax_is_cast(facts: Situation) -> bool:
    """Return whether softmax is computed in fp32 between 16-bit products."""
    return facts.product < FP32_BYTES and (facts.style.softmax_fp32 or facts.autocast)


def _backward(facts: Situation, saved: Rows) -> tuple[Rows, Rows]:
    if not facts.eager:
        return saved, (GRADIENT_RESIDUAL, GRADIENT_HEADS)
    if _softmax_is_cast(facts):
        left = tuple(row for row in saved if row is not SCORES_CAST)
        return left, (GRADIENT_RESIDUAL, GRADIENT_SCORES)
    return saved, (GRADIENT_RESIDUAL, GRADIENT_SCORES_Q)
