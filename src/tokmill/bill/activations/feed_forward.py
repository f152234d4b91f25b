"""The feed-forward layer, gated or not, and mixtures of experts in its place."""

from __future__ import annotations

from dataclasses import replace

from tokmill.bill.activations.part import (
    GRADIENT_RESIDUAL,
    HOOKS,
    STEPS,
    Part,
    Rows,
    adapter_rows,
    dropout,
    in_passing,
    inputs,
    kept,
    norm,
)
from tokmill.bill.activations.situation import Situation
from tokmill.bill.formula import Formula
from tokmill.bill.models.model import Block
from tokmill.bill.states.optimizers import FP32_BYTES

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
GRADIENT_F = in_passing("gradient inside the feed-forward layer", "q * f")
GRADIENT_GELU_NEW = Formula(
    "gradients inside gelu_new under CUDA's autocast", "8 * f", STEPS, "as GELU_NEW_AUTOCAST"
)


def feed_forward(facts: Situation, block: Block) -> Part:
    """Return the feed-forward part of a layer, with its norms."""
    style = facts.style
    one_norm = style.one_norm or "beside" in block.traits
    before = (
        *(() if one_norm or not style.norms_before else norm(facts, shared=style.parallel)),
        *(() if one_norm and not facts.own_copies else inputs(facts, style.inputs[1])),
    )
    inside, gradients = _activation(facts)
    if facts.model.dropout and style.inner_dropout:
        inside = (*inside, INNER_MASK)
    last = (DOWN_INPUT,) if facts.trained and not _shared_result(facts) else ()
    adapters = adapter_rows(facts, "mlp", DOWN_INPUT)
    after = (*adapters, *(norm(facts) if style.norms_after else ()), *dropout(facts))
    return Part(
        "feed-forward",
        "mlp",
        (*before, *inside, *last, *after),
        (*before, *inside, *after),
        (GRADIENT_RESIDUAL, *gradients),
        block.layers,
    )


def _shared_result(facts: Situation) -> bool:
    """Return whether the activation keeps its result, which is the last matrix's input."""
    between = facts.style.inner_dropout and (facts.model.dropout or facts.autocast)
    return not facts.style.gated and facts.model.activation in LINEAR_ACTIVATIONS and not between


def _activation(facts: Situation) -> tuple[Rows, Rows]:
    """Return what an activation keeps, and the gradients at the greatest moment of its backward."""
    unfused, gated = facts.model.activation in UNFUSED_GELU, facts.style.gated
    if gated and not unfused:
        return (GATED,), (GRADIENT_F,) * 3
    if unfused and facts.autocast:
        beside = (GATE_BESIDE_GELU_FP32,) if gated else ()
        return (GELU_NEW_AUTOCAST, *beside), (GRADIENT_GELU_NEW,)
    if unfused:
        return (GELU_NEW, *((GATE_BESIDE_GELU,) if gated else ())), (GRADIENT_F,) * 3
    return (ACTIVATION_INPUT,), (GRADIENT_F,) * 2


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
EVERY_EXPERT = Formula(
    "experts that compute every token (Llama 4): inputs, scaled, gate and up, activated, product",
    "E * (x_e * (d + 1) + q * (d + 4 * m))", HOOKS, "within 1% of a layer",
)  # fmt: skip
ROUTER_INPUT = kept("router in fp32 (DeepSeek): its input", "4 * d")
EXPERTS_CLAMPED = Formula(
    "active experts of gpt-oss: inputs, gate and up, clamped, sigmoid, products, output",
    "e * (2 * x_e * d + 7 * x_e * m)", HOOKS, "within 1% of a layer",
)  # fmt: skip
GRADIENT_OUTPUTS = in_passing(
    "gradients of the experts' outputs: weighted, and of both factors", "3 * e * x_e * d"
)
GATES = in_passing(
    "active experts: inputs, gate, activated gate, up", "e * (x_e * d + 3 * x_e * m)"
)
GRADIENT_GATES = in_passing("gradients inside the experts: product, gate and up", "3 * e * x_e * m")
INPUTS = in_passing("active experts: inputs", "e * x_e * d")
GRADIENT_INPUTS = in_passing(
    "gradients of the experts' inputs, gate and up", "e * (x_e * d + 2 * x_e * m)"
)
SHARED_EXPERT = Formula(
    "shared expert: gate, activated gate, up, product", "4 * q * f_shared", HOOKS,
    "some bytes of Qwen2-MoE's are left out",
)  # fmt: skip
SHARED_GATE = kept("gate of the shared expert: its input", "q * d")


LAYER_INPUTS = kept(
    "input of the layer's own: gated, and normalized",
    "4 * q * p + q * d",
)
GRADIENT_LAYER_INPUTS = in_passing("gradient of the layer's own input", "2 * q * p")


def layer_inputs(facts: Situation, block: Block) -> Part:
    """Return the part of a layer that adds an input of its own for each token (Gemma 4)."""
    rows = (*norm(facts), LAYER_INPUTS)
    gradients = (GRADIENT_RESIDUAL, GRADIENT_LAYER_INPUTS)
    return Part("input of the layer's own", "mlp", rows, rows, gradients, block.layers)


def experts_part(facts: Situation, block: Block) -> Part:
    """Return the part of a layer that holds experts, with its norm."""
    gate = (SHARED_GATE,) if facts.style.shared_gate else ()
    copies = inputs(facts, 2) if facts.own_copies else ()
    shared = (SHARED_EXPERT, *gate, *copies) if block.sizes["f_shared"] else ()
    chosen = EXPERTS_CLAMPED if facts.style.clamped else EXPERTS
    if "every" in block.traits:
        chosen = EVERY_EXPERT
    wide = facts.style.router_fp32 and facts.residual < FP32_BYTES
    router = (ROUTER, *((ROUTER_INPUT,) if wide else ()))
    others = (*norm(facts), *inputs(facts, 1), *router, *shared)
    saved = (*others, chosen)
    outputs = Part(
        "experts",
        "experts",
        saved,
        saved,
        (GRADIENT_RESIDUAL, EXPERTS_CLAMPED if facts.style.clamped else GRADIENT_OUTPUTS),
        block.layers,
        made="none",
    )
    gates = replace(
        outputs, left=(*others, GATES), gradients=(GRADIENT_RESIDUAL, GRADIENT_GATES), made="last"
    )
    first = replace(
        outputs, left=(*others, INPUTS), gradients=(GRADIENT_RESIDUAL, GRADIENT_INPUTS), made="all"
    )
    return replace(outputs, later=(gates, first))
