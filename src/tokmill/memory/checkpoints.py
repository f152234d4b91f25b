"""Checkpoints on disk: the trained weights, and what a run needs to go on from them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tokmill.memory.bill import Bill, Formula
from tokmill.memory.optimizers import MAIN_GRADIENT
from tokmill.memory.precision import scheme_of
from tokmill.memory.states import rank_states

if TYPE_CHECKING:
    from tokmill.memory.model import Model
    from tokmill.settings.bill import TrainingSettings

SAVED_WEIGHTS = Formula(
    "trained weights",
    "(kept + 1) * q * P_trained",
    "a file of tensors; safetensors of 1,152 MiB measured 1,207,965,248 B",
    "without the header, some kB",
)
SAVED_STATES = Formula(
    "optimizer states and fp32 copy of the weights",
    "(kept + 1) * saved",
    "bf16 with AdamW: 2 + 12 = 14 B a parameter; the shards of ZeRO sum to the same",
    "without the state of schedules and random numbers, some kB",
)

_ALONE: dict[str, Any] = {
    "gpus": 1, "gpus_per_node": 0, "sharding": "ddp", "offload": "none", "tensor_parallel": 1,
    "sequence_parallel": False, "pipeline_parallel": 1, "virtual_stages": 1,
    "context_parallel": 1, "expert_parallel": 1,
}  # fmt: skip
"""All ranks together save what one would that held everything."""


def checkpoint_bill(model: Model, training: TrainingSettings) -> Bill:
    """Return what the checkpoints of a run take: those kept, and the one being written.

    The lower bound is before and after the writing. A frozen base is not saved with its adapter.

    Raises:
        UsageError: settings contradict each other or the model.
    """
    states = rank_states(model, replace(training, **_ALONE))
    symbols = {
        "kept": training.checkpoints,
        "q": scheme_of(training).weight,
        "P_trained": sum(held.count for held in states.tensors if held.trained),
        "saved": sum(
            part.n_bytes for part in states.optimizer_parts if part.name != MAIN_GRADIENT.name
        ),
    }
    lines = []
    for formula in (SAVED_WEIGHTS, SAVED_STATES):
        each = formula.evaluate({**symbols, "kept": 0})
        lines.append(formula.line(symbols, low_bytes=training.checkpoints * each))
    name = "disk: checkpoints, kept and being written"
    return Bill(name, tuple(lines), ("logs", "a model saved by hand"))
