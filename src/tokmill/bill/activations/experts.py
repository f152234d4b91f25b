"""Mixtures of experts: the router, the experts that a token takes, the shared expert."""

from __future__ import annotations

from dataclasses import replace

from tokmill.bill.activations.norms import norm
from tokmill.bill.activations.part import (
    EXACT,
    GRADIENT_RESIDUAL,
    HOOKS,
    STEPS,
    Part,
    inputs,
    kept,
)
from tokmill.bill.activations.situation import Situation
from tokmill.bill.formula import Formula
from tokmill.bill.models.model import Experts
from tokmill.bill.states.optimizers import FP32_BYTES

ROUTER = Formula(
    "router: probabilities in fp32; indices, weights and positions of the chosen experts",
    "4 * E + 40 * e + 4", HOOKS, "exact for Mixtral; Qwen's have some bytes less",
)  # fmt: skip
EXPERTS = Formula(
    "active experts: inputs, gate, activated gate, up, product, output",
    "e * (2 * x_e * d + 4 * x_e * m)",
    f"{HOOKS}; torch's autocast has no grouped product in its list",
    "exact on one GPU; with expert parallelism tokens are taken as spread evenly",
)  # fmt: skip
ROUTER_INPUT = kept("router in fp32 (DeepSeek): its input", "4 * d")
EXPERTS_CLAMPED = Formula(
    "active experts of gpt-oss: inputs, gate and up, clamped, sigmoid, products, output",
    "e * (2 * x_e * d + 7 * x_e * m)", HOOKS, "within 1% of a layer",
)  # fmt: skip
GRADIENT_OUTPUTS = Formula(
    "gradients of the experts' outputs: weighted, and of both factors", "3 * e * x_e * d", STEPS,
    EXACT,
)  # fmt: skip
GATES = Formula(
    "active experts: inputs, gate, activated gate, up", "e * (x_e * d + 3 * x_e * m)", STEPS, EXACT
)
GRADIENT_GATES = Formula(
    "gradients inside the experts: product, gate and up", "3 * e * x_e * m", STEPS, EXACT
)
INPUTS = Formula("active experts: inputs", "e * x_e * d", STEPS, EXACT)
GRADIENT_INPUTS = Formula(
    "gradients of the experts' inputs, gate and up", "e * (x_e * d + 2 * x_e * m)", STEPS, EXACT
)
SHARED_EXPERT = Formula(
    "shared expert: gate, activated gate, up, product", "4 * q * f_shared", HOOKS,
    "some bytes of Qwen2-MoE's are left out",
)  # fmt: skip
SHARED_GATE = kept("gate of the shared expert: its input", "q * d")


def experts_part(at: Situation, experts: Experts) -> Part:
    """Return the part of a layer that holds experts, with its norm."""
    gate = (SHARED_GATE,) if at.style.shared_gate else ()
    copies = inputs(at, 2) if at.own_copies else ()
    shared = (SHARED_EXPERT, *gate, *copies) if experts.shared_ffn else ()
    chosen = EXPERTS_CLAMPED if at.style.clamped else EXPERTS
    wide = at.style.router_fp32 and at.residual < FP32_BYTES
    router = (ROUTER, *((ROUTER_INPUT,) if wide else ()))
    others = (*norm(at), *inputs(at, 1), *router, *shared)
    saved = (*others, chosen)
    outputs = Part(
        "experts",
        "experts",
        saved,
        saved,
        (GRADIENT_RESIDUAL, EXPERTS_CLAMPED if at.style.clamped else GRADIENT_OUTPUTS),
        len(experts.layers),
        made="none",
    )
    gates = replace(
        outputs, left=(*others, GATES), gradients=(GRADIENT_RESIDUAL, GRADIENT_GATES), made="last"
    )
    first = replace(
        outputs, left=(*others, INPUTS), gradients=(GRADIENT_RESIDUAL, GRADIENT_INPUTS), made="all"
    )
    return replace(outputs, later=(gates, first))
