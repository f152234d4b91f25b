"""The activations that a layer keeps for the backward pass, part by part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokmill.bill.activations import rows
from tokmill.bill.activations.situation import FP32_BYTES

if TYPE_CHECKING:
    from tokmill.bill.activations.situation import Situation
    from tokmill.bill.formula import Formula
    from tokmill.bill.models.model import Experts, Module

    Rows = tuple[Formula, ...]

LINEAR_ACTIVATIONS = ("relu",)
UNFUSED_GELU = ("gelu_new", "gelu_fast", "gelu_python")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a layer: rows that it keeps, and those at the greatest moment of its backward.

    Then `left` are the kept ones that are still there, and `gradients` stand beside them.
    `n_layers` have the part. `shared` is the row that is the layer's input itself, not a copy.
    """

    name: str
    module: Module
    saved: Rows
    left: Rows
    gradients: Rows
    n_layers: int
    shared: Formula | None = None


def layer_parts(at: Situation) -> tuple[Part, ...]:
    """Return the parts of a layer in the order of its forward pass.

    A mixture's layers hold experts where others have the feed-forward layer.
    """
    parts = [_attention(at)]
    if at.model.experts is None or len(at.model.experts.layers) < at.model.layers:
        parts.append(_feed_forward(at))
    if at.model.experts is not None:
        parts.append(_experts(at, at.model.experts))
    return tuple(parts)


def norm_rows(at: Situation) -> tuple[Rows, Rows]:
    """Return what the final norm still keeps when it is backward's turn, and its gradients."""
    if at.style.norm == "layer":
        return (rows.IDS, *_norm(at)), (rows.GRADIENT_LAYER_NORM,)
    return (rows.IDS, rows.RMS_INPUT, rows.RMS_INVERSE), (rows.GRADIENT_NORM,)


def forward_rows(at: Situation) -> Rows:
    """Return a layer with adapters at the greatest moment of forward, () where backward takes more.

    Under autocast that is the last matrix's adapter; else, with adapters in fp32, the up matrix's.
    """
    if not at.adapter or at.model.experts or not at.style.gated:
        return ()
    kept = [row for part in layer_parts(at) for row in part.saved]
    if rows.ADAPTER_F not in kept:
        return ()
    if at.autocast:
        return (*kept, rows.ADAPTER_CASTS_F, rows.ADAPTER_SUM_D)
    kept.remove(rows.ADAPTER_F)
    return (*kept, rows.ADAPTER_SUM_F, rows.NORMED, rows.NORMED)


def held_mask(at: Situation) -> Rows:
    """Return the mask that checkpointed layers hold, once for all of them."""
    if at.eager:
        return (rows.MASK_HELD,)
    return (rows.MASK_HELD_BOOL,) if at.masked else ()


def selective_rows(at: Situation) -> Rows:
    """Return what a layer keeps under torchtitan's policy; the rest is computed again."""
    kernel = () if at.eager else (rows.RESULT, rows.LOG_SUM_EXP)
    products = {
        (3, True): rows.PRODUCTS_GATED,
        (3, False): rows.PRODUCTS_PLAIN,
        (1, True): rows.PRODUCTS_FUSED_QKV,
        (1, False): rows.PRODUCTS_FUSED,
    }[at.style.inputs[0], at.style.gated]
    if at.style.inputs == (1, 1) and at.style.gated:
        products = rows.PRODUCTS_FUSED_GATED
    return rows.LAYER_INPUT, *kernel, products


def outside_rows(at: Situation) -> Rows:
    """Return the rows of what stands before and after the layers, but for the loss."""
    style = at.style
    return (
        rows.IDS,
        *(_norm(at) if style.embedding_norm else ()),
        *((rows.DROPOUT,) if at.dropout and style.dropouts else ()),
        *_norm(at),
        *((rows.INPUT,) if at.trained else ()),
    )


def _norm(at: Situation, *, shared: bool = False) -> Rows:
    """Return the rows of a norm of width d; `shared`: another norm keeps its input already."""
    if at.style.norm == "layer":
        return rows.LAYER_NORM_STATISTICS, *(() if shared else (rows.LAYER_NORM,))
    result = rows.RMS_FP32 if at.style.norm == "rms32" else rows.RMS_RESIDUAL
    return (rows.RMS_INPUT, rows.RMS_INVERSE, *((result,) if at.trained else ()))


def _inputs(at: Situation, linears: int) -> Rows:
    if not at.trained:
        return ()
    return (rows.INPUT,) * (linears if at.own_copies else 1)


def _attention(at: Situation) -> Part:
    style = at.style
    linears = style.inputs[0]
    saved = (
        *(_norm(at) if style.norms_before else ()),
        *_inputs(at, linears),
        *_adapter_rows(at, "attention"),
        *_head_norms(at),
        *(_eager(at) if at.eager else _kernel(at)),
        *(_norm(at) if style.norms_after else ()),
        *((rows.DROPOUT,) if at.dropout and style.dropouts else ()),
    )
    left, gradients = _attention_backward(at, saved)
    layers = at.model.layers
    return Part("attention", "attention", saved, left, gradients, layers, _layer_input(at))


def _layer_input(at: Situation) -> Formula | None:
    if at.style.norms_before == 0:
        return rows.INPUT if at.trained and not at.own_copies else None
    if at.style.norm == "layer":
        return rows.LAYER_NORM
    return rows.RMS_INPUT if at.residual == FP32_BYTES else None


def _head_norms(at: Situation) -> Rows:
    inputs = {"": None, "each": rows.RMS_HEADS, "all": rows.RMS_QUERY_KEY}[at.style.heads]
    result = rows.NORMED_HEADS_FP32 if at.style.norm == "rms32" else rows.NORMED_HEADS
    return (inputs, *((result,) if at.trained else ())) if inputs else ()


def _kernel(at: Situation) -> Rows:
    """Return the rows of a fused kernel: FlashAttention, or sdpa."""
    after: Rows = (rows.RESULT, rows.LOG_SUM_EXP)
    if at.trained and at.style.copied:
        after = (*after, rows.ATTENDED)
    if at.model.attention.kv_rank:
        return rows.LATENTS, rows.LATENT_HEADS, rows.LOG_SUM_EXP
    grouped = at.model.attention.kv_heads < at.model.attention.heads
    if at.masked and grouped:
        heads: Rows = (rows.QUERY, rows.REPEATED)
    elif at.style.fused == "all":
        heads = (rows.FUSED,)
    elif at.style.fused == "value":
        heads = (rows.QUERY, rows.KEY, rows.FUSED)
    else:
        heads = (rows.QUERY, rows.KEY, rows.VALUE)
    return (*heads, *after, *((rows.MASK,) if at.masked else ()))


def _eager(at: Situation) -> Rows:
    result = (rows.ATTENDED,) if at.trained else ()
    return rows.QUERY, rows.REPEATED, *result, *_scores(at)


def _scores(at: Situation) -> Rows:
    """Return the rows of what grows with the square of the sequence."""
    wide = at.product == FP32_BYTES
    fp32 = at.style.softmax_fp32 or at.autocast
    softmax: Rows = (rows.SCORES,) if wide else (rows.SCORES_CAST,)
    if not wide and fp32:
        softmax = (rows.SCORES, rows.SCORES_CAST)
    dropped = (rows.SCORES_DROPOUT, *((rows.SCORES_DROPPED,) if wide else ()))
    return (
        *((rows.SOFT_CAP,) if at.style.soft_cap else ()),
        *softmax,
        *(dropped if at.dropout else ()),
    )


def _attention_backward(at: Situation, saved: Rows) -> tuple[Rows, Rows]:
    if not at.eager:
        return saved, (rows.GRADIENT_RESIDUAL, rows.GRADIENT_HEADS)
    if at.product < FP32_BYTES and (at.style.softmax_fp32 or at.autocast):
        left = tuple(row for row in saved if row is not rows.SCORES_CAST)
        return left, (rows.GRADIENT_RESIDUAL, rows.GRADIENT_SCORES)
    return saved, (rows.GRADIENT_RESIDUAL, rows.GRADIENT_SCORES_Q)


def _feed_forward(at: Situation) -> Part:
    style = at.style
    before = (
        *(() if style.one_norm or not style.norms_before else _norm(at, shared=style.parallel)),
        *(() if style.one_norm and not at.own_copies else _inputs(at, style.inputs[1])),
    )
    after = (
        *(_norm(at) if style.norms_after else ()),
        *((rows.DROPOUT,) if at.dropout and style.dropouts else ()),
    )
    inside, gradients = _activation(at)
    adapters = _adapter_rows(at, "mlp")
    last = (rows.DOWN_INPUT,) if at.trained and not _shared_result(at) else ()
    experts = at.model.experts
    return Part(
        "feed-forward",
        "mlp",
        (*before, *inside, *last, *adapters, *after),
        (*before, *inside, *adapters, *after),
        (rows.GRADIENT_RESIDUAL, *gradients),
        at.model.layers - (len(experts.layers) if experts else 0),
    )


def _shared_result(at: Situation) -> bool:
    """Return whether the activation keeps its result, which is the last matrix's input."""
    return not at.style.gated and at.model.activation in LINEAR_ACTIVATIONS


def _activation(at: Situation) -> tuple[Rows, Rows]:
    """Return what an activation keeps, and the gradients at the greatest moment of its backward."""
    if at.style.gated:
        return (rows.GATED,), (rows.GRADIENT_F,) * 3
    if at.model.activation in UNFUSED_GELU:
        if at.autocast:
            return (rows.GELU_NEW_AUTOCAST,), (rows.GRADIENT_GELU_NEW,)
        return (rows.GELU_NEW,), (rows.GRADIENT_F,) * 3
    return (rows.ACTIVATION_INPUT,), (rows.GRADIENT_F,) * 2


def _experts(at: Situation, experts: Experts) -> Part:
    gate = (rows.SHARED_GATE,) if at.style.shared_gate else ()
    shared = (rows.SHARED_EXPERT, *gate) if experts.shared_ffn else ()
    saved = (*_norm(at), *_inputs(at, 1), rows.ROUTER, rows.EXPERTS, *shared)
    gradients = (rows.GRADIENT_RESIDUAL, rows.EXPERTS)
    return Part("experts", "experts", saved, saved, gradients, len(experts.layers))


def _adapter_rows(at: Situation, module: str) -> Rows:
    """Return the rows of a module's adapters: copies of inputs or inputs once, and r features."""
    here = [tensor for tensor in at.targets if tensor.module == module and tensor.layers]
    last = rows.ATTENDED if module == "attention" else rows.DOWN_INPUT
    copy = rows.ADAPTER_AH if module == "attention" else rows.ADAPTER_F
    found = [rows.ADAPTER_RANK] * len(here)
    first = [tensor for tensor in here if tensor.split != "rows"]
    ends = [tensor for tensor in here if tensor.split == "rows"]
    if at.adapter:
        return (*found, *[rows.ADAPTER_D] * len(first), *[copy] * len(ends))
    kept = [last] if ends and (module != "attention" or at.style.copied or at.eager) else []
    return (*found, *[rows.INPUT] * bool(first), *kept)
