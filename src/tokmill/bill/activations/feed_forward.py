"""The feed-forward layer: gated or not, and its activation function."""

from __future__ import annotations

from tokmill.bill.activations.adapters import adapter_rows
from tokmill.bill.activations.norms import norm
from tokmill.bill.activations.part import (
    EXACT,
    GRADIENT_RESIDUAL,
    HOOKS,
    STEPS,
    Part,
    Rows,
    dropout,
    inputs,
    kept,
)
from tokmill.bill.activations.situation import Situation
from tokmill.bill.formula import Formula

LINEAR_ACTIVATIONS = ("relu",)
UNFUSED_GELU = ("gelu_new", "gelu_fast", "gelu_python")

GATED = kept("gated feed-forward: gate, activated gate, up", "3 * q * f")
ACTIVATION_INPUT = kept("feed-forward: input of the activation", "q * f")
GELU_NEW = kept("gelu_new, not fused: four intermediate tensors", "4 * q * f")
GELU_NEW_AUTOCAST = Formula(
    "gelu_new under CUDA's autocast: three of four intermediate tensors in fp32",
    "(12 + q) * f", HOOKS, "CUDA's rule for powers applied on a CPU; 4 * q * f by the CPU's rule",
)  # fmt: skip
GATE_BESIDE_GELU = kept("gated feed-forward: activated gate, up", "2 * q * f")
GATE_BESIDE_GELU_FP32 = Formula(
    "gated feed-forward under CUDA's autocast: activated gate in fp32, up", "(4 + q) * f", HOOKS,
    "as GELU_NEW_AUTOCAST",
)  # fmt: skip
INNER_MASK = Formula(
    "feed-forward: mask of the dropout inside", "f", "torch's native_dropout on CUDA: a byte each",
    "formula; a CPU keeps masks of the input's type",
)  # fmt: skip
DOWN_INPUT = kept("feed-forward: input of the last matrix", "q * f")
GRADIENT_F = Formula("gradient inside the feed-forward layer", "q * f", STEPS, EXACT)
GRADIENT_GELU_NEW = Formula(
    "gradients inside gelu_new under CUDA's autocast", "8 * f", STEPS, "as GELU_NEW_AUTOCAST"
)


def feed_forward(at: Situation) -> Part:
    """Return the feed-forward part of a layer, with its norms."""
    style, experts = at.style, at.model.experts
    before = (
        *(() if style.one_norm or not style.norms_before else norm(at, shared=style.parallel)),
        *(() if style.one_norm and not at.own_copies else inputs(at, style.inputs[1])),
    )
    inside, gradients = _activation(at)
    if at.dropout and style.inner_dropout:
        inside = (*inside, INNER_MASK)
    last = (DOWN_INPUT,) if at.trained and not _shared_result(at) else ()
    adapters = adapter_rows(at, "mlp", DOWN_INPUT)
    after = (*adapters, *(norm(at) if style.norms_after else ()), *dropout(at))
    return Part(
        "feed-forward",
        "mlp",
        (*before, *inside, *last, *after),
        (*before, *inside, *after),
        (GRADIENT_RESIDUAL, *gradients),
        at.model.layers - (len(experts.layers) if experts else 0),
    )


def _shared_result(at: Situation) -> bool:
    """Return whether the activation keeps its result, which is the last matrix's input."""
    between = at.style.inner_dropout and (at.dropout or at.autocast)
    return not at.style.gated and at.model.activation in LINEAR_ACTIVATIONS and not between


def _activation(at: Situation) -> tuple[Rows, Rows]:
    """Return what an activation keeps, and the gradients at the greatest moment of its backward."""
    unfused, gated = at.model.activation in UNFUSED_GELU, at.style.gated
    if gated and not unfused:
        return (GATED,), (GRADIENT_F,) * 3
    if unfused and at.autocast:
        beside = (GATE_BESIDE_GELU_FP32,) if gated else ()
        return (GELU_NEW_AUTOCAST, *beside), (GRADIENT_GELU_NEW,)
    if unfused:
        return (GELU_NEW, *((GATE_BESIDE_GELU,) if gated else ())), (GRADIENT_F,) * 3
    return (ACTIVATION_INPUT,), (GRADIENT_F,) * 2
