"""Weights, gradients and optimizer states on the fullest rank, and offloaded ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tokmill.bill.formula import Line
from tokmill.bill.models.adapters import adapted
from tokmill.bill.models.model import Model
from tokmill.bill.models.shapeless import is_counted
from tokmill.bill.models.weight_types import PLAIN_BYTES
from tokmill.bill.states.buffers import bucket_line, cast_line, flat_line, gathered_line
from tokmill.bill.states.contradictions import check_parallelism
from tokmill.bill.states.offload import offloaded_lines
from tokmill.bill.states.optimizer_step import step_line
from tokmill.bill.states.optimizers import optimizer_lines
from tokmill.bill.states.parallel import RankTensor, count_among, rank_tensors
from tokmill.bill.states.precision import UNSTACKED, frozen_bytes, frozen_type
from tokmill.bill.states.sharding import sharding_of, shards
from tokmill.bill.states.weights import REFERENCE, gradients_line, reference_symbols, weights_line
from tokmill.settings.training import TrainingSettings


@dataclass(frozen=True, slots=True)
class States:
    """The states on the fullest rank, and those in the host RAM of its node.

    `weights` are there all the time (and the model's buffers); `gradients` when all of them exist;
    `optimizer`, a line for each kind of state, from the first step on. `casts` live in forward and
    backward. `gathered` are weights made whole, or dequantized, for the moment of a layer.
    `flat_buffer` and `step_temporary` live in the step. `reference` is DPO's second model. `host`
    are lines of a node: what is offloaded. `parameters` and `trainable` are elements that this rank
    works on, before data-parallel ranks share them. `tensors` are what the amounts are sums over.
    """

    weights: Line
    gradients: Line
    optimizer: tuple[Line, ...]
    casts: Line | None
    gathered: Line | None
    buckets: Line | None
    flat_buffer: Line | None
    step_temporary: Line
    reference: Line
    host: tuple[Line, ...]
    parameters: int
    trainable: int
    tensors: tuple[RankTensor, ...]
    leaves_out: tuple[str, ...] = ()

    @property
    def n_bytes(self) -> int:
        """Weights, gradients and optimizer states in GPU memory."""
        return sum(line.n_bytes for line in (self.weights, self.gradients, *self.optimizer))


def rank_states(model: Model, training: TrainingSettings, stage: int | None = None) -> States:
    """Return the states of a rank of a pipeline stage; without one, of the stage that holds most.

    Raises:
        UsageError: settings contradict each other or the model.
    """
    check_parallelism(model, training)
    tensors = rank_tensors(model, training, stage)
    trained = tuple(held for held in tensors if held.trained)
    offloads, shared = training.offload != "none", sharding_of(training)
    # What the host holds and steps on, the GPU does not; only ZeRO-1 keeps its gradients.
    stepped = () if offloads else trained
    ranks = shards(training, shared=shared.optimizer)
    no_layers = is_counted(model) and shared.weights
    return States(
        weights=weights_line(() if training.offload == "all" else tensors, model, training),
        gradients=gradients_line(() if offloads and shared.gradients else trained, training),
        optimizer=optimizer_lines(stepped, training, ranks),
        casts=cast_line(model, tensors, training),
        gathered=None if no_layers else gathered_line(tensors, training),
        buckets=None if no_layers else bucket_line(trained, training),
        flat_buffer=flat_line(trained, training),
        reference=REFERENCE.line(
            reference_symbols(() if training.offload == "all" else tensors, training)
        ),
        step_temporary=step_line(stepped, training, ranks),
        host=offloaded_lines(tensors, training),
        parameters=count_among(tensors, 1),
        trainable=count_among(trained, 1),
        tensors=tensors,
        leaves_out=tuple(_left_out(model, training)),
    )


def _left_out(model: Model, training: TrainingSettings) -> Iterator[str]:
    if is_counted(model) and sharding_of(training).weights:
        yield f"layers that {training.sharding} gathers: their size is not known"
    if training.adapter == "none":
        return
    quantized = any(frozen_bytes(t, model, training) < PLAIN_BYTES["bf16"] for t in model.tensors)
    if any(t.kind == "experts" for t in adapted(model, training.adapter_targets)):
        yield "the product of adapters on stacked experts, as large as the experts of a layer"
    if model.experts and quantized and frozen_type(training) in UNSTACKED:
        yield "quantized experts: stacked ones are counted in 16 bit"
    if training.sharding == "zero-3" and quantized:
        yield "matrices that are dequantized after ZeRO-3 gathered them"
