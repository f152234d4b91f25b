"""Disk space of the checkpoints of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tokmill.bill.formula import Bill, Formula
from tokmill.bill.models.model import Model
from tokmill.bill.states.contradictions import check_parallelism
from tokmill.bill.states.optimizers import STATES, kept_states, off_gpu
from tokmill.bill.states.parallel import count_among, rank_tensors
from tokmill.bill.states.precision import scheme_of
from tokmill.settings.training import TrainingSettings

SAVED_WEIGHTS = Formula(
    "trained weights",
    "(kept + 1) * q * P_trained",
    "a file of tensors; safetensors of 1,152 MiB measured 1,207,965,248 B",
    "without the header, some kB",
)
SAVED_STATES = {
    name: Formula(
        f"saved: {name}",
        f"(kept + 1) * {formula.expression}",
        "bf16 with AdamW: 2 + 12 B a parameter; the shards of ZeRO sum to the same",
        "without the state of schedules and random numbers, some kB",
    )
    for name, formula in STATES.items()
}
_ALONE: dict[str, Any] = {
    "gpus": 1, "gpus_per_node": 0, "sharding": "ddp", "offload": "none", "tensor_parallel": 1,
    "sequence_parallel": False, "pipeline_parallel": 1, "virtual_stages": 1,
    "context_parallel": 1, "expert_parallel": 1, "expert_tensor_parallel": 0,
}  # fmt: skip
"""Settings of a single rank: all ranks together save what one rank with all states would."""


def checkpoint_bill(model: Model, training: TrainingSettings) -> Bill:
    """Return the disk space of the checkpoints of a run: those kept, and one being written.

    The lower bound is without the one being written. A frozen base is not saved with its adapters.

    Raises:
        UsageError: settings contradict each other or the model.
    """
    alone = replace(training, **_ALONE)
    check_parallelism(model, alone)
    trained = [held for held in rank_tensors(model, alone) if held.trained]
    scheme = scheme_of(training)
    weights = {"q": scheme.weight, "P_trained": count_among(trained, 1)}
    saved = kept_states(trained, off_gpu(training.optimizer), replace(scheme, main_gradient=0), 1)
    lines = []
    for formula, symbols in [
        (SAVED_WEIGHTS, weights),
        *((SAVED_STATES[name], symbols) for name, symbols in saved.items()),
    ]:
        each = formula.evaluate({**symbols, "kept": 0})
        low = training.checkpoints * each
        lines.append(formula.line({**symbols, "kept": training.checkpoints}, low_bytes=low))
    name = "disk: checkpoints, kept and being written"
    return Bill(name, tuple(lines), ("logs", "a model saved by hand"))
