"""The tensors that a layer of Megatron-LM keeps for its backward pass, in bytes per token.

The rows are by Korthikanti et al. 2022. Their 34 d of a GPT layer are 10 d
between the matrices and 24 d inside them, which tensor parallelism splits; sequence parallelism
splits the rest too. Here the 24 d are taken apart, so that grouped heads and other widths fit:
4 a h + 4 k h + 4 f with one activation, 6 f with a gated one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.bill.formula import Formula

if TYPE_CHECKING:
    from tokmill.settings.training import TrainingSettings


KORTHIKANTI = "Korthikanti et al. 2022, Reducing Activation Recomputation, table 2"
ERROR = "their table for GPT within 1 %; grouped heads and gated layers by the same count"

BETWEEN = Formula(
    "outside the matrices: norms, inputs, dropout masks", "10 * d", KORTHIKANTI, ERROR
)
INSIDE = Formula(
    "inside the matrices, split by tensor parallelism",
    "(4 * a * h + 4 * k * h + 4 * f) / t", KORTHIKANTI, ERROR,
)  # fmt: skip
INSIDE_GATED = Formula(
    "inside a gated feed-forward layer, split by tensor parallelism",
    "(4 * a * h + 4 * k * h + 6 * f) / t", KORTHIKANTI, ERROR,
)  # fmt: skip
MEGATRON_SCORES = Formula(
    "attention scores, their dropout mask, scores after dropout",
    "5 * a * s / t",
    KORTHIKANTI,
    ERROR,
)
BETWEEN_SPLIT = Formula(
    "outside the matrices, split by sequence parallelism", "10 * d / t", KORTHIKANTI, ERROR
)
EMBEDDING = Formula("ids, and the embedding's dropout mask", "8 + d", KORTHIKANTI, ERROR)
EMBEDDING_SPLIT = Formula(
    "ids, and the embedding's dropout mask, split by sequence parallelism", "(8 + d) / t",
    KORTHIKANTI, ERROR,
)  # fmt: skip
OUTPUT = Formula("final norm and output layer: their inputs", "4 * d", KORTHIKANTI, ERROR)
OUTPUT_SPLIT = Formula(
    "final norm and output layer: their inputs, split by sequence parallelism", "4 * d / t",
    KORTHIKANTI, ERROR,
)  # fmt: skip


def megatron_layer(training: TrainingSettings, *, gated: bool) -> tuple[Formula, ...]:
    """Return the rows of a layer without full recomputation."""
    between = BETWEEN_SPLIT if training.sequence_parallel else BETWEEN
    rows = (between, INSIDE_GATED if gated else INSIDE)
    scores = training.attention == "eager" and training.checkpointing != "selective"
    return (*rows, MEGATRON_SCORES) if scores else rows


def megatron_outside(training: TrainingSettings, *, last: bool) -> tuple[Formula, ...]:
    """Return the rows of the first stage, and of a `last` one."""
    split = training.sequence_parallel
    embedding = EMBEDDING_SPLIT if split else EMBEDDING
    output = OUTPUT_SPLIT if split else OUTPUT
    return (embedding, output) if last else (embedding,)
