"""Optimizer states of the trained tensors, and temporary memory of the optimizer step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tokmill.bill.formula import Formula
from tokmill.bill.states.parallel import count_among
from tokmill.bill.states.precision import scheme_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokmill.bill.formula import Line
    from tokmill.bill.states.parallel import RankTensor
    from tokmill.settings.training import TrainingSettings

FP32_BYTES = 4
SMALLEST_8BIT = 4096
"""bitsandbytes keeps tensors of fewer elements in 32 bit."""
BYTES_8BIT = 1 + 4 / 256
"""Bytes of an element of a moment in 8 bit: one, and a fp32 scale for a block of 256."""

SOURCE = "ZeRO (Rajbhandari et al. 2020), section 3.1; the optimizers' code"
OPTIMIZER = Formula(
    "optimizer states",
    "(q_copies * P_trained + q_moment * moments + q_8bit * moments_8bit) / shards",
    SOURCE,
    "exact against torch.optim and transformers' Adafactor; 8 bit by bitsandbytes' code, lower "
    "bound: embeddings too",
)
MASTER = Formula("fp32 copy of the weights", "q_copy * P_trained / shards", SOURCE, "exact")
MAIN_GRADIENT = Formula(
    "fp32 copy of the gradients", "q_copy * P_trained / shards", SOURCE, "exact"
)
FIRST_MOMENT = Formula(
    "first moment", "(q_moment * moments + q_8bit * moments_8bit) / shards", SOURCE, "exact"
)
SECOND_MOMENT = Formula(
    "second moment", "(q_moment * moments + q_8bit * moments_8bit) / shards", SOURCE, "exact"
)
STEP = Formula(
    "temporary copies of the optimizer's step",
    "copies * q_moment * P_step",
    "PyTorch's optimizers: foreach AdamW takes the root of all second moments at once, the "
    "for-loop two copies of a tensor",
    "exact for AdamW (measured on GPT-2 small: 20.00 and 18.48 B a parameter), SGD and momentum; "
    "Adafactor and Lion by their code; a fused step takes nothing",
)
STEP_MUON = Formula(
    "temporary copies of Muon's step",
    "(q_moment + 4) * P_step + 4 * narrow ** 2",
    "torch.optim.Muon: the update of a matrix, two in bf16, two of its narrow side squared",
    "by its code",
)


def optimizer_line(tensors: Sequence[RankTensor], training: TrainingSettings, shards: int) -> Line:
    """Return all that is kept of the trained `tensors`, where `shards` ranks share it."""
    scheme = scheme_of(training)
    symbols = moment_symbols(tensors, training, shards) | {
        "q_copies": scheme.master + scheme.main_gradient,
        "P_trained": count_among(tensors, shards),
    }
    low = OPTIMIZER.evaluate(symbols)
    if training.optimizer == "adamw-8bit":
        tables = [held for held in tensors if held.tensor.kind == "embedding"]
        low -= round(2 * (FP32_BYTES - BYTES_8BIT) * count_among(tables, shards) / shards)
    return OPTIMIZER.line(symbols, low_bytes=low)


def optimizer_parts(
    tensors: Sequence[RankTensor], training: TrainingSettings, shards: int
) -> tuple[Line, ...]:
    """Return what `optimizer_line` is the sum of: fp32 copies and moments, without those of 0 B."""
    scheme = scheme_of(training)
    copied = {"P_trained": count_among(tensors, shards), "shards": shards}
    lines = (
        MASTER.line(copied | {"q_copy": scheme.master}),
        MAIN_GRADIENT.line(copied | {"q_copy": scheme.main_gradient}),
        FIRST_MOMENT.line(moment_symbols(tensors, training, shards, which=(0,))),
        SECOND_MOMENT.line(moment_symbols(tensors, training, shards, which=(1,))),
    )
    return tuple(line for line in lines if line.n_bytes)


def moment_symbols(
    tensors: Sequence[RankTensor],
    training: TrainingSettings,
    shards: int,
    *,
    which: tuple[int, ...] = (0, 1),
) -> dict[str, float]:
    """Return the symbols of first (0) and second (1) moments that `shards` ranks share."""
    elements = {False: 0, True: 0}
    for held in tensors:
        kept = moments(held.among(shards), training.optimizer)
        eight_bit = training.optimizer == "adamw-8bit" and is_kept_in_8_bit(held)
        elements[eight_bit] += sum(kept[moment] for moment in which)
    return {
        "q_moment": moment_bytes(training),
        "moments": elements[False],
        "q_8bit": BYTES_8BIT,
        "moments_8bit": elements[True],
        "shards": shards,
    }


def moments(held: RankTensor, optimizer: str) -> tuple[int, int]:
    """Return the elements of all copies of a tensor that are kept as first and as second moment.

    Adafactor keeps the sums of a matrix's rows and columns. Muon keeps one moment of matrices
    inside layers; all else is AdamW's.
    """
    match optimizer:
        case "sgd":
            return 0, 0
        case "momentum" | "lion":
            return held.count, 0
        case "adafactor":
            return 0, _factored(held)
        case "muon" if is_orthogonalized(held):
            return held.count, 0
        case _:
            return held.count, held.count


def _factored(held: RankTensor) -> int:
    if len(held.shape) < 2:
        return held.count
    rows, columns = held.shape[-2:]
    return held.count // rows + held.count // columns


def is_orthogonalized(held: RankTensor) -> bool:
    """Return whether Muon steps on a tensor: matrices inside layers, stacked experts one by one."""
    axes = {"linear": 2, "experts": 3}.get(held.tensor.kind)
    return held.layers is not None and len(held.shape) == axes


def is_kept_in_8_bit(held: RankTensor) -> bool:
    """Return whether bitsandbytes' 8-bit AdamW keeps a tensor so: no small ones and no embeddings.

    Embeddings are in 32 bit by a choice of Hugging Face's Trainer.
    """
    return held.size >= SMALLEST_8BIT and held.tensor.kind != "embedding"


def moment_bytes(training: TrainingSettings) -> int:
    """Return the bytes of an element of a moment that is not kept in 8 bit.

    Those of transformers' Adafactor and of 8-bit AdamW are fp32 whatever the weights are.
    """
    if training.optimizer in ("adafactor", "adamw-8bit"):
        return FP32_BYTES
    return scheme_of(training).moment


def step_line(tensors: Sequence[RankTensor], training: TrainingSettings, shards: int) -> Line:
    """Return what the step on the trained `tensors` takes, where `shards` ranks share them.

    Muon steps on its matrices, whole ones also where they are sharded; AdamW on the rest.
    """
    if training.optimizer != "muon":
        return _step(tensors, training, shards)
    rest = [held for held in tensors if not is_orthogonalized(held)]
    matrices = [held for held in tensors if is_orthogonalized(held)]
    lines = [_step(rest, training, shards), *(_muon_step(held, training) for held in matrices)]
    return max(lines, key=lambda line: line.n_bytes)


def _step(tensors: Sequence[RankTensor], training: TrainingSettings, shards: int) -> Line:
    """Return the step on all tensors at once or on the largest; ZeRO's are one flat tensor."""
    copies, at_once = _copies(training)
    if at_once or training.sharding.startswith("zero"):
        elements = count_among(tensors, shards)
    else:
        elements = max((held.size for held in tensors), default=0)
    symbols = {
        "copies": copies,
        "q_moment": moment_bytes(training),
        "P_step": math.ceil(elements / shards),
    }
    return STEP.line(symbols)


def _copies(training: TrainingSettings) -> tuple[int, bool]:
    """Return the copies that a step takes, and whether of all tensors at once."""
    scheme, step = scheme_of(training), training.optimizer_step
    match training.optimizer:
        case "adafactor":
            # Two of the update; of 16-bit weights also the gradient and the weight in fp32.
            return (2 if FP32_BYTES in (scheme.weight, scheme.master) else 4), False
        case "sgd" | "momentum" | "adamw-8bit":
            return 0, False
        case "lion":
            return (0 if step == "fused" else 2), False
        case _:
            return {"foreach": (1, True), "for-loop": (2, False), "fused": (0, False)}[step]


def _muon_step(held: RankTensor, training: TrainingSettings) -> Line:
    rows, columns = held.shape[-2:]
    symbols = {
        "q_moment": moment_bytes(training),
        "P_step": rows * columns,
        "narrow": min(rows, columns),
    }
    return STEP_MUON.line(symbols)
