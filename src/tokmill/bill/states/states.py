"""Weights, gradients and optimizer states of the fullest rank, on its GPU and offloaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tokmill.bill.formula import Formula, Line
from tokmill.bill.models.adapters import adapted
from tokmill.bill.models.model import Model
from tokmill.bill.models.shapeless import is_counted
from tokmill.bill.models.weight_types import PLAIN_BYTES
from tokmill.bill.states.buffers import bucket_line, cast_line, flat_line, gathered_line
from tokmill.bill.states.checkpoints import offloaded_lines
from tokmill.bill.states.contradictions import check_parallelism
from tokmill.bill.states.optimizers import optimizer_lines, step_line
from tokmill.bill.states.parallel import RankTensor, count_among, rank_tensors, sharding_of, shards
from tokmill.bill.states.precision import UNSTACKED, frozen_bytes, frozen_type
from tokmill.bill.states.weights import REFERENCE, gradients_line, reference_symbols, weights_line
from tokmill.settings.training import TrainingSettings

EXPERTS_PRODUCT = "the product of adapters on stacked experts, as large as the experts of a layer"

RULE_OF_THUMB = Formula(
    "rule of thumb: activations 30% of 16-bit weights",
    "0.3 * 2 * P",
    "tables of blogs and courses, which add it to 16 bytes a parameter",
    "too low by an order of magnitude for long sequences: --only gpu computes activations",
)


@dataclass(frozen=True, slots=True)
class States:
    """The states of the fullest rank, and those in the host RAM of its node.

    Attributes:
        weights: all weights and the model's buffers; they exist all the time.
        gradients: all gradients, as at the end of backward.
        optimizer: a line for each kind of state, from the first step on.
        casts: 16-bit copies of weights during forward and backward.
        gathered: weights that are gathered or dequantized while a layer computes.
        buckets: buffers for communication.
        flat_buffer: all gradients in one fp32 buffer, during the step.
        step_temporary: temporary copies of the optimizer's step.
        reference: weights of DPO's reference model.
        host: offloaded states of all ranks of a node.
        parameters: elements of this rank before data-parallel ranks share them.
        trainable: the trained ones of `parameters`.
        tensors: the tensors of this rank; the amounts are sums over them.
        leaves_out: what no line counts.
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
    """Return the states of a rank of a pipeline stage; by default of the stage with most states.

    Raises:
        UsageError: settings contradict each other or the model.
    """
    check_parallelism(model, training)
    tensors = rank_tensors(model, training, stage)
    trained = tuple(share for share in tensors if share.trained)
    offloads, shared = training.offload != "none", sharding_of(training)
    # With offload the host holds the states and steps; only ZeRO-1 keeps gradients on the GPU.
    stepped = () if offloads else trained
    on_gpu = () if training.offload == "all" else tensors
    ranks = shards(training, shared=shared.optimizer)
    no_layers = is_counted(model) and shared.weights
    return States(
        weights=weights_line(on_gpu, model, training),
        gradients=gradients_line(() if offloads and shared.gradients else trained, training),
        optimizer=optimizer_lines(stepped, training, ranks),
        casts=cast_line(model, tensors, training),
        gathered=None if no_layers else gathered_line(tensors, training),
        buckets=None if no_layers else bucket_line(trained, training),
        flat_buffer=flat_line(trained, training),
        reference=REFERENCE.line(reference_symbols(on_gpu, training)),
        step_temporary=step_line(stepped, training, ranks),
        host=offloaded_lines(tensors, training),
        parameters=count_among(tensors, 1),
        trainable=count_among(trained, 1),
        tensors=tensors,
        leaves_out=tuple(_left_out(model, training)),
    )


def _left_out(model: Model, training: TrainingSettings) -> Iterator[str]:
    """Yield what is not counted of weights that are gathered, quantized or adapted."""
    if is_counted(model) and sharding_of(training).weights:
        yield f"layers that {training.sharding} gathers: their size is not known"
    if training.adapter == "none" or training.framework == "megatron":
        return
    quantized = any(frozen_bytes(t, model, training) < PLAIN_BYTES["bf16"] for t in model.tensors)
    stacked = model.experts and training.transformers != "4"
    targets = adapted(model, training.adapter_targets)
    if stacked and any(t.kind == "experts" for t in targets):
        yield EXPERTS_PRODUCT
    if stacked and quantized and frozen_type(training) in UNSTACKED:
        yield "quantized experts: stacked ones are counted in 16 bit"
    if training.sharding == "zero-3" and quantized:
        yield "matrices that are dequantized after ZeRO-3 gathered them"
