"""Mixtures of experts: the router, the experts that a token takes, the shared expert."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.bill.activations.norms import norm
from tokmill.bill.activations.part import GRADIENT_RESIDUAL, HOOKS, Part, inputs, kept
from tokmill.bill.activations.situation import FP32_BYTES
from tokmill.bill.formula import Formula

if TYPE_CHECKING:
    from tokmill.bill.activations.situation import Situation
    from tokmill.bill.models.model import Experts

ROUTER = Formula(
    "router: probabilities in fp32; indices, weights and positions of the chosen experts",
    "4 * E + 40 * e + 4", HOOKS, "exact for Mixtral; Qwen's have some bytes less",
)  # fmt: skip
EXPERTS = Formula(
    "active experts: inputs, gate, activated gate, up, product, output",
    "e * (2 * x * d + 4 * x * m)", f"{HOOKS}; torch's autocast has no grouped product in its list",
    "exact on one GPU; with expert parallelism tokens are taken as spread evenly",
)  # fmt: skip
ROUTER_INPUT = kept("router in fp32 (DeepSeek): its input", "4 * d")
EXPERTS_CLAMPED = Formula(
    "active experts of gpt-oss: inputs, gate and up, clamped, sigmoid, products, output",
    "e * (2 * x * d + 7 * x * m)", HOOKS, "within 1 % of a layer",
)  # fmt: skip
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
    saved = (*norm(at), *inputs(at, 1), *router, chosen, *shared)
    gradients = (GRADIENT_RESIDUAL, chosen)
    return Part("experts", "experts", saved, saved, gradients, len(experts.layers))
