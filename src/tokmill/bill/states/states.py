"""Weights, gradients and optimizer states on the fullest rank, offloaded ones, and checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tokmill.bill.formula import Bill, Formula
from tokmill.bill.models.adapters import adapted
from tokmill.bill.states.contradictions import check_parallelism
from tokmill.bill.states.optimizers import (
    FP32_BYTES,
    MAIN_GRADIENT,
    moment_symbols,
    optimizer_line,
    optimizer_parts,
    step_line,
)
from tokmill.bill.states.parallel import (
    SHARDED_GRADIENTS,
    SHARDED_WEIGHTS,
    RankTensor,
    count_among,
    rank_tensors,
    ranks_per_node,
    state_ranks,
)
from tokmill.bill.states.precision import QUANTIZED, WEIGHT_BYTES, frozen_type, scheme_of
from tokmill.bill.states.sharding import bucket_line, cast_line, gathered_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tokmill.bill.formula import Line
    from tokmill.bill.models.model import Model
    from tokmill.settings.training import TrainingSettings


ZERO = "ZeRO (Rajbhandari et al. 2020), figure 1; Megatron-LM's distributed optimizer"
OFFLOAD = "DeepSpeed's estimators"
BUFFERS = 1.5
"""DeepSpeed's factor for buffers and pinned memory."""

WEIGHTS = Formula(
    "weights",
    "(q_trained * P_trained + q_frozen * P_frozen + q_quantized * P_quantized) / shards + buffers",
    f"{ZERO}; 4 bit: QLoRA (Dettmers et al. 2023)",
    "exact; scales of fp8 and int8 (0.1 %) are left out; upper bound: what is not quantized in "
    "fp32, as peft prepares it",
)
GRADIENTS = Formula(
    "gradients",
    "q_gradient * P_trained / shards",
    ZERO,
    "exact; upper bound: accumulated in a fp32 buffer besides",
)
OFFLOADED_OPTIMIZER = Formula(
    "offloaded optimizer states and gradients",
    "R * (q_copies * P_trained + q_moment * moments + q_8bit * moments_8bit) / shards",
    f"{OFFLOAD}: of AdamW 16 B a parameter, 4 of them the gradient in fp32",
    "not measured; upper bound: DeepSpeed's factor 1.5 for buffers and pinned memory",
)
OFFLOADED_WEIGHTS = Formula(
    "offloaded weights",
    "R * (q_trained * P_trained + q_frozen * P_frozen + q_quantized * P_quantized) / shards",
    f"{OFFLOAD}: 2 B a parameter in 16 bit",
    "not measured; upper bound: DeepSpeed's factor 1.5 for buffers and pinned memory",
)


@dataclass(frozen=True, slots=True)
class States:
    """The states on the fullest rank, and those in the host RAM of its node.

    `weights` are there all the time (and the model's buffers); `gradients` when all of them exist;
    `optimizer` from the first step on, and `optimizer_parts` are what it is the sum of. `casts`
    live in forward and backward. `gathered` are weights made whole, or dequantized, for the moment
    of a layer. `step_temporary` lives in the step. `host` are lines of a node: what is offloaded.
    `parameters` and `trainable` are elements that this rank works on, before data-parallel ranks
    share them. `tensors` are what the amounts are sums over.
    """

    weights: Line
    gradients: Line
    optimizer: Line
    optimizer_parts: tuple[Line, ...]
    casts: Line | None
    gathered: Line | None
    buckets: Line | None
    step_temporary: Line
    host: tuple[Line, ...]
    parameters: int
    trainable: int
    tensors: tuple[RankTensor, ...]
    leaves_out: tuple[str, ...] = ()


def rank_states(model: Model, training: TrainingSettings) -> States:
    """Return the states of the fullest rank.

    Raises:
        UsageError: settings contradict each other or the model.
    """
    check_parallelism(model, training)
    tensors = rank_tensors(model, training)
    trained = tuple(held for held in tensors if held.trained)
    offloads = training.offload != "none"
    sharded = training.sharding in SHARDED_GRADIENTS
    # What the host holds and steps on, the GPU does not; only ZeRO-1 keeps its gradients.
    stepped = () if offloads else trained
    shards = _shards(training, training.sharding != "ddp")
    return States(
        weights=_weights(() if training.offload == "all" else tensors, model, training),
        gradients=_gradients(() if offloads and sharded else trained, training),
        optimizer=optimizer_line(stepped, training, shards),
        optimizer_parts=optimizer_parts(stepped, training, shards),
        casts=cast_line(model, tensors, training),
        gathered=gathered_line(tensors, training),
        buckets=bucket_line(trained, training),
        step_temporary=step_line(stepped, training, shards),
        host=_host(tensors, training) if offloads else (),
        parameters=count_among(tensors, 1),
        trainable=count_among(trained, 1),
        tensors=tensors,
        leaves_out=tuple(_left_out(model, training)),
    )


def _shards(training: TrainingSettings, sharded: bool) -> int:
    return state_ranks(training) if sharded else 1


def _weights(tensors: tuple[RankTensor, ...], model: Model, training: TrainingSettings) -> Line:
    symbols = _weight_symbols(tensors, training) | {"buffers": model.buffer_bytes}
    more = 0.0
    if frozen_type(training) in QUANTIZED:
        more = (FP32_BYTES - symbols["q_frozen"]) * symbols["P_frozen"] / symbols["shards"]
    return WEIGHTS.line(symbols, high_bytes=WEIGHTS.evaluate(symbols) + round(more))


def _weight_symbols(tensors: Iterable[RankTensor], training: TrainingSettings) -> dict[str, float]:
    kind = frozen_type(training)
    shards = _shards(training, training.sharding in SHARDED_WEIGHTS)
    found = {"P_trained": 0, "P_frozen": 0, "P_quantized": 0}
    for held in tensors:
        quantized = held.weight_bytes < WEIGHT_BYTES["bf16"]
        part = "P_trained" if held.trained else "P_quantized" if quantized else "P_frozen"
        found[part] += held.among(shards).count
    return {
        **found,
        "q_trained": scheme_of(training).weight,
        "q_frozen": WEIGHT_BYTES["bf16" if kind in QUANTIZED else kind],
        "q_quantized": WEIGHT_BYTES[kind],
        "shards": shards,
    }


def _gradients(trained: tuple[RankTensor, ...], training: TrainingSettings) -> Line:
    shards = _shards(training, training.sharding in SHARDED_GRADIENTS)
    elements = count_among(trained, shards)
    symbols = {"q_gradient": scheme_of(training).gradient, "P_trained": elements, "shards": shards}
    expected = GRADIENTS.evaluate(symbols)
    buffered = training.accumulation > 1 and training.precision == "mixed-16"
    buffer = round(FP32_BYTES * elements / shards) if buffered else 0
    return GRADIENTS.line(symbols, high_bytes=expected + buffer)


def _host(tensors: tuple[RankTensor, ...], training: TrainingSettings) -> tuple[Line, ...]:
    """Return what the ranks of a node offload.

    DeepSpeed steps there on fp32 copies of weight and gradient; FSDP on what the scheme has.
    """
    trained = tuple(held for held in tensors if held.trained)
    scheme, shards, ranks = scheme_of(training), state_ranks(training), ranks_per_node(training)
    symbols = moment_symbols(trained, training, shards) | {
        "R": ranks,
        "P_trained": count_among(trained, shards),
        "q_copies": scheme.master + scheme.main_gradient + scheme.gradient,
    }
    if training.sharding != "fsdp":
        symbols |= {"q_copies": 2 * FP32_BYTES, "q_moment": FP32_BYTES}
    lines = [_with_buffers(OFFLOADED_OPTIMIZER, symbols)]
    if training.offload == "all":
        symbols = _weight_symbols(tensors, training) | {"R": ranks}
        lines.append(_with_buffers(OFFLOADED_WEIGHTS, symbols))
    return tuple(lines)


def _with_buffers(formula: Formula, symbols: Mapping[str, float]) -> Line:
    return formula.line(symbols, high_bytes=round(BUFFERS * formula.evaluate(symbols)))


def _left_out(model: Model, training: TrainingSettings) -> Iterator[str]:
    if training.adapter == "none":
        return
    quantized = frozen_type(training) in QUANTIZED
    if any(t.kind == "experts" for t in adapted(model, training.adapter_targets)):
        yield "the product of adapters on stacked experts, as large as the experts of a layer"
    if model.experts and quantized:
        yield "quantized experts: stacked ones are counted in 16 bit"
    if training.sharding == "zero-3" and quantized:
        yield "matrices that are dequantized after ZeRO-3 gathered them"


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
