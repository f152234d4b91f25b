"""Logits that Hugging Face's evaluation loop keeps for metrics, first on the GPU, then on the host.

Each data-parallel rank gathers the logits of all ranks and concatenates them with those of earlier
batches; both inputs still exist beside the result. Every `eval_accumulation` batches the logits
move to the host, or at the end of the loop if it is 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tokmill.bill.activations.loss import forward_line, loss_lines
from tokmill.bill.activations.situation import Situation
from tokmill.bill.formula import Formula, Line
from tokmill.bill.states.optimizers import FP32_BYTES
from tokmill.bill.states.parallel import data_parallel
from tokmill.bill.states.precision import precision_of, scheme_of
from tokmill.settings.training import TrainingSettings

LOOP = "evaluation_loop of transformers 5.23, seen with torch's MemTracker on fake tensors"
ERROR = "exact for one rank; assumes that an evaluation batch has the size of the micro batch"

EARLIER_LOGITS = Formula(
    "logits of earlier evaluation batches, for metrics", "q_logits * n * V * N * batches_held",
    LOOP, ERROR,
)  # fmt: skip
JOINED_LOGITS = Formula(
    "logits of evaluation batches for metrics, and the same concatenated",
    "2 * q_logits * n * V * N * batches_held", LOOP, ERROR,
)  # fmt: skip
HOST_LOGITS = Formula(
    "logits kept for metrics", "q_host * n * V * N * metric_batches * R",
    "EvalLoopContainer of transformers 5.23, measured: numpy arrays in fp32, from bf16 with a copy "
    "(4 + 2 B); those of earlier moves and the same concatenated (4 + 4 B); in every process",
    "exact for the loop; memory of compute_metrics itself is not modelled",
)  # fmt: skip


def batches_at_once(training: TrainingSettings) -> int:
    """Return the number of evaluation batches whose logits are on the GPU at the same time."""
    return min(training.metric_batches, training.eval_accumulation or training.metric_batches)


def forward_lines(
    facts: Situation, training: TrainingSettings, symbols: Mapping[str, float]
) -> tuple[Line, ...]:
    """Return the logits when the loss of the last of these batches is computed.

    From the third batch on, a variable of the loop keeps a second copy of the batch before.
    """
    before = batches_at_once(training) - 1
    held = EARLIER_LOGITS.line(_symbols(facts, training, symbols, before + (before > 1)))
    # A fused loss computes no logits, but metrics need them.
    full = replace(training, loss="full")
    return held, *loss_lines(full, symbols, capped=False), forward_line(full, symbols)


def joined_lines(
    facts: Situation, training: TrainingSettings, symbols: Mapping[str, float]
) -> tuple[Line, ...]:
    """Return the logits when those of the last batch are concatenated with the others."""
    batches = batches_at_once(training)
    formula = JOINED_LOGITS if batches > 1 else EARLIER_LOGITS
    return (formula.line(_symbols(facts, training, symbols, batches)),)


def host_line(training: TrainingSettings, symbols: Mapping[str, float]) -> Line:
    """Return the logits in host RAM when the loop ends; `symbols` has n, V and R."""
    q = FP32_BYTES
    if 0 < training.eval_accumulation < training.metric_batches:
        q = 2 * FP32_BYTES
    elif precision_of(training) != "amp" and scheme_of(training).computed < FP32_BYTES:
        q = FP32_BYTES + scheme_of(training).computed
    own = {"q_host": q, "N": data_parallel(training), "metric_batches": training.metric_batches}
    return HOST_LOGITS.line({**symbols, **own})


def _symbols(
    facts: Situation, training: TrainingSettings, symbols: Mapping[str, float], batches: int
) -> dict[str, float]:
    """Return the symbols; with autocast, accelerate converts the model's outputs to fp32."""
    q = FP32_BYTES if facts.autocast else facts.product
    return {**symbols, "q_logits": q, "N": data_parallel(training), "batches_held": batches}
