"""Temporary memory of the optimizer's step: foreach, for-loop, fused, Muon."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tokmill.bill.formula import Formula, Line
from tokmill.bill.states.optimizers import FP32_BYTES, is_orthogonalized, moment_bytes
from tokmill.bill.states.parallel import RankTensor, count_among
from tokmill.bill.states.precision import scheme_of
from tokmill.bill.states.sharding import sharding_of
from tokmill.settings.training import TrainingSettings

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


def step_line(tensors: Sequence[RankTensor], training: TrainingSettings, shards: int) -> Line:
    """Return the temporary memory of a step on the trained `tensors`, sharded over `shards` ranks.

    Muon updates one complete matrix at a time, also where matrices are sharded; AdamW the rest.
    """
    if training.optimizer != "muon":
        return _step(tensors, training, shards)
    rest = [held for held in tensors if not is_orthogonalized(held)]
    matrices = [held for held in tensors if is_orthogonalized(held)]
    lines = [_step(rest, training, shards), *(_muon_step(held, training) for held in matrices)]
    return max(lines, key=lambda line: line.n_bytes)


def _step(tensors: Sequence[RankTensor], training: TrainingSettings, shards: int) -> Line:
    """Return the temporary memory for all tensors at once, or for the largest one.

    ZeRO flattens all tensors into one.
    """
    copies, at_once = _copies(training)
    if at_once or sharding_of(training).program == "deepspeed":
        elements = count_among(tensors, shards)
    else:
        elements = max((held.size for held in tensors), default=0)
    return STEP.line(
        _symbols(training) | {"copies": copies, "P_step": math.ceil(elements / shards)}
    )


def _copies(training: TrainingSettings) -> tuple[int, bool]:
    """Return the number of copies that a step makes, and whether of all tensors at once.

    Megatron-LM steps with a fused kernel of Apex or Transformer Engine.
    """
    is_megatron = sharding_of(training).program == "megatron"
    scheme, step = scheme_of(training), "fused" if is_megatron else training.optimizer_step
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
    return STEP_MUON.line(
        _symbols(training) | {"P_step": rows * columns, "narrow": min(rows, columns)}
    )


def _symbols(training: TrainingSettings) -> dict[str, float]:
    return {"q_moment": moment_bytes(training.optimizer, scheme_of(training))}
