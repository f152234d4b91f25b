"""The tensors that a layer of Megatron-LM keeps for its backward pass, in bytes per token.

Korthikanti et al. 2022 count 34 d for a GPT layer in 16 bit: 10 d between the matrices (inputs of
norms and matrices, dropout masks) and 24 d inside them, which tensor parallelism splits; sequence
parallelism splits the rest too. Here the same tensors have a row each, so that grouped heads, other
widths, gates, experts, fp32 and models without dropout fit. The rows are equal to the tensors that
autograd saves in megatron-core 0.16.1, but for what its GPU kernels do otherwise.

Tokens of a rank are all those of the sequence; `u` GPUs split what lies between the matrices.
"""

from __future__ import annotations

from tokmill.bill.activations.mixers import MIXERS, mixer
from tokmill.bill.activations.part import Part, Rows
from tokmill.bill.activations.situation import Situation, named_blocks
from tokmill.bill.formula import Formula
from tokmill.bill.models.model import Block
from tokmill.settings.training import TrainingSettings

KORTHIKANTI = "Korthikanti et al. 2022, section 4; hooks on saved tensors, megatron-core 0.16.1"
EXACT = "equal to what autograd saves, per token and layer; statistics of norms are left out"


def _kept(name: str, expression: str) -> Formula:
    """Return a row that was equal to the saved tensors."""
    return Formula(name, expression, KORTHIKANTI, EXACT)


NORM = _kept("norm: its input", "x * d / u")
LINEAR_INPUT = _kept("matrix behind a norm: its input", "q * d / u")
ADAPTER_INPUT = Formula(
    "adapter behind a norm: its input, of all tokens", "q * d",
    "Megatron-Bridge and ms-swift: return_layernorm_output_gathered", "by the code",
)  # fmt: skip
ADAPTER_RANK = Formula(
    "adapter: its low-rank features", "q * r", "Megatron-Bridge's ParallelLinearAdapter",
    "by the code",
)  # fmt: skip
DROPOUT = _kept("dropout: its mask", "d / u")
HEADS = _kept("attention: queries, keys, values and output", "q * (2 * a + 2 * k) * h")
FROZEN_HEADS = _kept("attention: queries, keys and values", "q * (a + 2 * k) * h")
HEAD_NORMS = _kept("norms of queries and keys: their inputs", "q * (a + k) * h")
LOG_SUM_EXP = _kept("flash attention: log-sum-exp", "4 * a")
SCORES = _kept("attention without a fused kernel: softmax", "q * a * s")
SCORES_DROPPED = _kept(
    "attention without a fused kernel: mask of dropout, softmax after it", "(q + 1) * a * s"
)
LATENTS = _kept(
    "MLA: compressed queries, keys and values, before and after their norms",
    "q * (2 * r_q + 2 * r_kv + r_rope) / u",
)
LATENT_HEADS = _kept(
    "MLA: queries and keys with rotary part, values, and the attention output",
    "2 * q * a * (h_nope + r_rope + h_v)",
)
ACTIVATION_INPUT = _kept("feed-forward: input of the activation", "q * f")
GATED_INPUT = _kept("gated feed-forward: gate and up", "2 * q * f")
DOWN_INPUT = _kept("feed-forward: input of the last matrix", "q * f")
ROUTER = _kept(
    "router: probabilities in fp32 and cast, map of experts, indices and weights of the chosen",
    "((5 + q) * E + (28 + q) * e) / u",
)
EXPERTS = Formula(
    "active experts: inputs, gate and up, input of the last matrix",
    "e_rank * (q * d + 3 * q * m)", KORTHIKANTI,
    "exact where every expert gets as many tokens as another; last stages of Mixtral in "
    "Megatron-LM's release tests: 4, 5 and 12% below",
)  # fmt: skip
SHARED_EXPERT = _kept("shared expert: gate and up, input of the last matrix", "3 * q * f_shared")
FROZEN_EXPERTS = _kept("active experts, frozen: gate and up", "2 * e_rank * q * m")
FROZEN_SHARED = _kept("shared expert, frozen: gate and up", "2 * q * f_shared")

FOOTPRINT = "Megatron-LM, theoretical_memory_usage.py; Korthikanti et al. 2022, section 4.3"
EMBEDDING = Formula("token ids and labels", "8 / u", FOOTPRINT, "exact")
OUTPUT = Formula("final norm and output layer: their inputs", "(x + q) * d / u", FOOTPRINT, "exact")
FROZEN_OUTPUT = Formula("final norm: its input", "x * d / u", FOOTPRINT, "exact")

BACKWARD = "the order of autograd's steps with Megatron-LM's fused kernels"
GRADIENT_RESIDUAL = Formula("gradient of the residual", "x * d / u", BACKWARD, "by the code")
GRADIENT_F = Formula("gradient inside the feed-forward layer", "q * f", BACKWARD, "by the code")
GRADIENT_HEADS = Formula(
    "gradients of queries, keys, values and attention output", HEADS.expression, BACKWARD,
    "a kernel may take some more",
)  # fmt: skip
GRADIENT_LATENT_HEADS = Formula(
    "MLA: gradients of queries, keys, values and attention output", LATENT_HEADS.expression,
    BACKWARD, "a kernel may take some more",
)  # fmt: skip
GRADIENT_SCORES = Formula(
    "gradients before and after softmax", "2 * q * a * s", BACKWARD, "by the code"
)
GRADIENT_EXPERTS = Formula(
    "gradients inside the experts", "e_rank * q * (max(d, m) + m)", BACKWARD, "by the code"
)


def megatron_parts(facts: Situation, training: TrainingSettings) -> tuple[Part, ...]:
    """Return the parts of a layer that is not recomputed in full."""
    parts: list[Part] = []
    for block, names in named_blocks(facts.model):
        if block.kind in ("attention", "latent"):
            parts.append(_attention(facts, training, block).renamed(names))
        elif block.kind in MIXERS:
            parts.append(mixer(facts, block).renamed(names))
        elif block.kind == "mlp":
            parts.append(_feed_forward(facts, block).renamed(names))
        elif block.kind == "experts":
            parts.append(_experts(facts, block).renamed(names))
    return tuple(parts)


def _experts(facts: Situation, block: Block) -> Part:
    """Return the part of a layer that holds experts."""
    is_trained = facts.trained or _has_adapters(facts, "experts", last=False)
    rows = (*_norm(facts, "experts"), ROUTER, EXPERTS if is_trained else FROZEN_EXPERTS)
    if block.sizes["f_shared"]:
        rows = (*rows, SHARED_EXPERT if is_trained else FROZEN_SHARED)
    gradients = (GRADIENT_RESIDUAL, GRADIENT_EXPERTS)
    return Part("experts", "experts", rows, rows, gradients, block.layers)


def megatron_outside(facts: Situation, *, first: bool, last: bool) -> Rows:
    """Return the rows outside the layers of a stage, which may be the `first` and the `last`."""
    embedding = (EMBEDDING, *((DROPOUT,) if facts.model.dropout else ())) if first else ()
    return (*embedding, *((OUTPUT if facts.trained else FROZEN_OUTPUT,) if last else ()))


def _norm(facts: Situation, module: str) -> Rows:
    """Return the norm of a module, the input of the matrix behind it, and the dropout at the end.

    A frozen matrix keeps no input, but a router does; an adapter keeps that of all tokens.
    """
    behind: Rows = (LINEAR_INPUT,)
    if not facts.trained and module != "experts":
        adapted = _has_adapters(facts, module, last=False)
        behind = (ADAPTER_INPUT, ADAPTER_RANK) if adapted else ()
    return NORM, *behind, *((DROPOUT,) if facts.model.dropout else ())


def _has_adapters(facts: Situation, module: str, *, last: bool) -> bool:
    """Return whether matrices of a module have adapters: those behind its norm, or its last."""
    here = [target for target in facts.targets if target.module == module]
    return any((target.split == "rows") == last for target in here)


def _attention(facts: Situation, training: TrainingSettings, block: Block) -> Part:
    """Return the part of a layer that attends; recomputed core attention keeps no scores."""
    # An encoder masks padding, for which Megatron-LM's attention keeps its scores.
    encoder = training.attention == "auto" and facts.model.encoder_layers
    fused = training.attention != "eager" and not encoder
    adapted = _has_adapters(facts, "attention", last=True)
    latent = block.kind == "latent"
    # Without a trained matrix or an adapter behind it, only a fused kernel keeps its output.
    has_output = facts.trained or adapted or (fused and training.checkpointing != "selective")
    heads = (LATENTS, LATENT_HEADS) if latent else (HEADS if has_output else FROZEN_HEADS,)
    saved = (*_norm(facts, "attention"), *heads, *((HEAD_NORMS,) if facts.style.heads else ()))
    saved = (*saved, *((ADAPTER_RANK,) if adapted else ()))
    gradient = GRADIENT_LATENT_HEADS if latent else GRADIENT_HEADS
    gradients = (GRADIENT_RESIDUAL, gradient)
    inside: Rows = (LOG_SUM_EXP,)
    if not fused:
        inside = (SCORES, *((SCORES_DROPPED,) if facts.model.attention_dropout else ()))
        gradients = (GRADIENT_RESIDUAL, GRADIENT_SCORES)
    kept = saved if training.checkpointing == "selective" else (*saved, *inside)
    left = (*saved, *inside)
    return Part("attention", "attention", kept, left, gradients, block.layers, NORM)


def _feed_forward(facts: Situation, block: Block) -> Part:
    """Return the feed-forward part of a layer."""
    adapted = _has_adapters(facts, "mlp", last=True)
    left = (*_norm(facts, "mlp"), GATED_INPUT if facts.style.gated else ACTIVATION_INPUT)
    last = (
        *((DOWN_INPUT,) if facts.trained or adapted else ()),
        *((ADAPTER_RANK,) if adapted else ()),
    )
    gradients = (GRADIENT_RESIDUAL, *(GRADIENT_F,) * (3 if facts.style.gated else 2))
    return Part("feed-forward", "mlp", (*left, *last), left, gradients, block.layers)
