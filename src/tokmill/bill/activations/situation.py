"""Facts that decide which tensors a layer keeps, and the values of the symbols on one rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from tokmill.bill.models.adapters import adapted
from tokmill.bill.models.model import Block, Model, Style, Tensor
from tokmill.bill.states.optimizers import FP32_BYTES
from tokmill.bill.states.parallel import expert_tensor_parallel, sharding_of
from tokmill.bill.states.precision import SCHEMES, frozen_type, is_prepared, precision_of, scheme_of
from tokmill.settings.training import TrainingSettings

PEFT_LEAVES_CASTS = ("int8", "int4", "nf4", "nf4-double")
"""Types whose layers in peft 0.21 (bnb, gptq, awq) do not cast inputs if autocast is on."""
HALF_BYTES = 2


@dataclass(frozen=True, slots=True)
class Situation:
    """The facts besides the family that decide which activations a layer keeps.

    `trained`: the base's weights are. `residual`, `product` and `adapter` are the bytes x, q and y
    of the rows; `adapter` is 0 where adapters read what is there anyway. `own_copies`: each linear
    layer casts its input itself. `targets` are the adapted matrices.
    """

    model: Model
    style: Style
    trained: bool
    autocast: bool
    residual: int
    product: int
    adapter: int
    eager: bool
    masked: bool
    targets: tuple[Tensor, ...]

    @property
    def own_copies(self) -> bool:
        """Return whether every linear layer keeps a 16-bit copy of a fp32 input."""
        return self.residual != self.product


def situation(model: Model, training: TrainingSettings) -> Situation:
    """Return the facts that decide which rows a layer has, from model and settings."""
    trained = training.adapter == "none"
    product = SCHEMES[precision_of(training)].computed
    style = model.style
    attention = style.attention(training.attention)
    return Situation(
        model=model,
        style=style,
        trained=trained,
        autocast=precision_of(training) == "amp",
        residual=_residual_bytes(training, trained=trained),
        product=product,
        adapter=0 if trained else _adapter_bytes(training, product),
        eager=attention == "eager",
        masked=attention == "sdpa-mask",
        targets=() if trained else adapted(model, training.adapter_targets),
    )


def _adapter_bytes(training: TrainingSettings, product: int) -> int:
    """Return bytes per element of the copies that adapters make of their inputs; 0: no copies.

    peft casts an input to the adapter's type, which is fp32 on a 16-bit base; with autocast the
    matrix product casts it back. Every adapted layer keeps its own copy. On quantized layers peft
    leaves the cast to autocast, and the input already has the right type.
    """
    if precision_of(training) == "amp":
        return 0 if frozen_type(training) in PEFT_LEAVES_CASTS else product
    weight = scheme_of(training).weight
    return 0 if weight == product else weight


def _residual_bytes(training: TrainingSettings, *, trained: bool) -> int:
    """Return bytes per element between layers: the type of the embedding when it is computed.

    Sharded weights are gathered in the type of the products (FSDP's mixed precision).
    """
    if trained:
        held = scheme_of(training).weight
    else:
        wide = frozen_type(training) == "fp32" or is_prepared(training)
        held = FP32_BYTES if wide else HALF_BYTES
    if sharding_of(training).weights:
        return min(held, SCHEMES[precision_of(training)].computed)
    return held


DEFAULT_SEQUENCE = 2048


def default_sequence(model: Model) -> int:
    """Return the tokens of a sequence if nothing sets them: 2,048, or all positions if fewer."""
    return min(DEFAULT_SEQUENCE, model.positions or DEFAULT_SEQUENCE)


def activation_symbols(
    model: Model, training: TrainingSettings, facts: Situation
) -> dict[str, float]:
    """Return the values of the symbols; heads and widths are a rank's share.

    With context parallelism a rank sees s / c tokens of a sequence.
    """
    ranks, expert_ranks = training.tensor_parallel, expert_tensor_parallel(training)
    split = ranks if training.sequence_parallel else 1
    # DPO takes log-probabilities of the logits as they are, without a loss of the model.
    in_fp32 = facts.style.loss_fp32 and not training.reference_model
    sizes = dict(ABSENT)
    for block, names in named_blocks(model):
        for name, value in block.sizes.items():
            sizes[names.get(name, name)] = _of_rank(name, value, ranks, expert_ranks)
    return {
        **sizes,
        "V": model.outputs,
        "b": training.micro_batch,
        "d": model.hidden,
        "e_rank": sizes["e"] * expert_ranks / split,
        "n": training.micro_batch * training.sequence / training.context_parallel,
        "q": facts.product,
        "q_loss": FP32_BYTES if in_fp32 or facts.autocast else facts.product,
        "r": training.adapter_rank,
        "s": training.sequence,
        "t": training.tensor_parallel,
        "u": split,
        "x": facts.residual,
        "x_e": facts.product if training.transformers == "4" else facts.residual,
        "y": facts.adapter or facts.product,
    }


ABSENT = dict.fromkeys(
    ("a", "f", "h", "k", "r_kv", "r_q", "r_rope", "h_nope", "h_v", "E", "e", "m", "f_shared"), 0.0
)
"""Sizes of parts that a model may not have."""
SPLIT = ("a", "f", "f_shared", "a_k", "a_v", "c", "a_m")
"""Sizes of which a tensor-parallel rank has its share."""


def _of_rank(name: str, value: float, ranks: int, expert_ranks: float) -> float:
    """Return a rank's share of a size."""
    if name == "k":
        return max(value / ranks, 1)
    if name == "m":
        return value / expert_ranks
    return value / ranks if name in SPLIT else value


def named_blocks(model: Model) -> Sequence[tuple[Block, Mapping[str, str]]]:
    """Return the blocks of a model, equal ones as one, with new names of their symbols.

    The first block with a symbol gives it its value; one with another value has another symbol: h,
    then h_2.
    """
    return _named(model.blocks)


@lru_cache(maxsize=64)
def _named(blocks: tuple[Block, ...]) -> Sequence[tuple[Block, Mapping[str, str]]]:
    found = []
    joined: dict[Any, Block] = {}
    for block in blocks:
        key = block.kind, tuple(block.sizes.items()), block.traits, block.reads
        one = joined.get(key, replace(block, layers=()))
        joined[key] = replace(one, layers=tuple(sorted({*one.layers, *block.layers})))
    known: dict[str, float] = {}
    for block in joined.values():
        names = {}
        for name, value in block.sizes.items():
            symbol = _symbol(name, value, known)
            known[symbol] = value
            if symbol != name:
                names[name] = symbol
        found.append((block, names))
    return found


def _symbol(name: str, value: float, known: Mapping[str, float]) -> str:
    """Return the symbol of a size: its name, with a number if the name has another value."""
    symbol, number = name, 1
    while known.get(symbol, value) != value:
        number += 1
        symbol = f"{name}_{number}"
    return symbol
