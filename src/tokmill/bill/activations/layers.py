"""The parts of a layer, the rows outside the layers, and what recomputed layers keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tokmill.bill.activations.attention import LOG_SUM_EXP, RESULT, attention, cross_attention
from tokmill.bill.activations.feed_forward import experts_part, feed_forward, layer_inputs
from tokmill.bill.activations.mixers import MIXERS, mixer
from tokmill.bill.activations.part import IDS, INPUT, Part, Rows, dropout, kept, norm
from tokmill.bill.activations.situation import Situation, named_blocks
from tokmill.bill.formula import Formula
from tokmill.bill.models.model import Block, BlockKind

TRANSFORM = kept("matrix before the head: input of its activation", "q * d")

ALL_INPUTS = kept(
    "inputs of the layers' own: the projection's input, their norm in fp32", "q * d + 8 * L_p + 8"
)


def layer_parts(facts: Situation) -> tuple[Part, ...]:
    """Return the parts of the layers in the order of a forward pass.

    A layer has only some of them: those whose `layers` hold its number.
    """
    return tuple(
        PARTS[block.kind](facts, block).renamed(names)
        for block, names in named_blocks(facts.model)
        if block.kind in PARTS
    )


PARTS: Mapping[BlockKind, Callable[[Situation, Block], Part]] = {
    "attention": attention,
    "latent": attention,
    "cross": cross_attention,
    **dict.fromkeys(MIXERS, mixer),
    "mlp": feed_forward,
    "inputs": layer_inputs,
    "experts": experts_part,
}


def outside_rows(facts: Situation) -> Rows:
    """Return the rows before and after the layers, without the loss."""
    stack = (
        IDS,
        *(norm(facts) if facts.style.embedding_norm else ()),
        *dropout(facts),
        *(norm(facts) if facts.style.final_norm else ()),
        *((INPUT,) if facts.trained else ()),
    )
    if any(block.kind == "inputs" for block in facts.model.blocks):
        return (*stack, ALL_INPUTS)
    if facts.model.cross_layers:
        return (*stack, *dropout(facts)) * 2
    if facts.style.transform and facts.model.labels is None:
        return (*stack, TRANSFORM, *norm(facts), *((INPUT,) if facts.trained else ()))
    return stack


CHECKPOINTS = Formula(
    "activations: inputs of checkpointed layers", "n * layers_kept * x * d / u",
    "torch.utils.checkpoint, not reentrant; seen on fake tensors",
    "exact; split by sequence parallelism: not measured",
)  # fmt: skip
HELD_BY_HOOKS = Formula(
    "inputs of recomputed layers and their gradients, held by FSDP1",
    "n * (2 * layers - 3) * x * d",
    "FSDP1 hooks the input of a layer whose weights are frozen (register_multi_grad_hook). If "
    "checkpointing is reentrant, that is a leaf, which its hook keeps alive, with its gradient, "
    "until backward ends; FSDP2 has no such hook",
    "exact: seen on storages of torch 2.13 (tests/oracles/test_fsdp.py); none with transformers 5, "
    "whose checkpointing is not reentrant",
)
MASK_HELD = kept("eager attention, checkpointed: one mask for all layers", "x * s")
MASK_HELD_BOOL = kept("sdpa with a mask, checkpointed: one mask for all layers", "s")

TORCHTITAN = "torchtitan's policy for operations: attention's result and every second product"
LAYER_INPUT = Formula("selective checkpointing: the layer's input", "x * d", TORCHTITAN)
PRODUCTS = Formula(
    "selective: every second matrix product", "q * w_products", TORCHTITAN,
    "exact on fake tensors, with adapters within 3%; 82.4 GiB published for Llama-3.1-8B on 8 "
    "GPUs: 15% below",
)  # fmt: skip


def shared_mask(facts: Situation) -> Rows:
    """Return the attention mask that all checkpointed layers share."""
    if facts.eager:
        return (MASK_HELD,)
    return (MASK_HELD_BOOL,) if facts.masked else ()


def selective_rows(facts: Situation) -> Rows:
    """Return what a layer keeps under torchtitan's policy; the rest is computed again."""
    kernel = () if facts.eager else (RESULT, LOG_SUM_EXP)
    return LAYER_INPUT, *kernel, PRODUCTS


def kept_products(facts: Situation, symbols: Mapping[str, float]) -> float:
    """Return the width of the first product of the last layer, the third and so on, of q bytes.

    An adapter makes two after its matrix. Grouped products of experts are none; the router's is.
    """
    adapted = {tensor.name for tensor in facts.targets}
    last, low_rank = facts.model.layers - 1, symbols["y"] / symbols["q"]
    matrices = [t for t in facts.model.tensors if t.kind == "linear" and last in (t.layers or ())]
    widths: list[float] = []
    for tensor in sorted(matrices, key=lambda t: (t.module != "attention", t.split == "rows")):
        width = tensor.n_out / (symbols["t"] if tensor.split == "columns" else 1)
        widths.append(width)
        if tensor.name in adapted:
            widths += [low_rank * symbols["r"], low_rank * width]
    return sum(widths[::2])
