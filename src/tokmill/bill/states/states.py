"""Weights, gradients and optimizer states of the fullest rank: on its GPU, offloaded, on disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tokmill.bill.formula import Bill, Formula, Line
from tokmill.bill.models.adapters import adapted
from tokmill.bill.models.model import Model
from tokmill.bill.models.shapeless import is_counted
from tokmill.bill.models.weight_types import PLAIN_BYTES
from tokmill.bill.states.buffers import FLAT, bucket_line, cast_line, gathered_line
from tokmill.bill.states.optimizers import (
    FP32_BYTES,
    MAIN_GRADIENT,
    STATES,
    kept_states,
    off_gpu,
    optimizer_lines,
    step_line,
)
from tokmill.bill.states.parallel import (
    RankTensor,
    count_among,
    rank_tensors,
    ranks_per_node,
    sharding_of,
    shards,
    state_ranks,
)
from tokmill.bill.states.precision import (
    UNSTACKED,
    frozen_bytes,
    frozen_type,
    precision_of,
    scheme_of,
    stored_note,
)
from tokmill.settings.training import TrainingSettings

ZERO = "ZeRO (Rajbhandari et al. 2020), figure 1; Megatron-LM's distributed optimizer"
WEIGHTS = Formula(
    "weights",
    "(q_trained * P_trained + q_frozen * P_frozen + q_quantized * P_quantized) / shards + buffers",
    f"{ZERO}; 4 bit: QLoRA (Dettmers et al. 2023)",
    "exact, scales included; upper bound: weights that are not quantized in fp32, as peft "
    "prepares them",
)
GRADIENTS = Formula(
    "gradients",
    "q_gradient * P_trained / shards",
    ZERO,
    "exact; upper bound: also a fp32 buffer for accumulation (DeepSpeed's BF16_Optimizer)",
)
UNSHARED = Formula(
    "gradients of micro batches, not yet shared (FSDP)",
    "q_computed * P_trained",
    "no_sync of accelerate and Lightning Fabric: until the last micro batch of a step FSDP neither "
    "reduces nor shards gradients",
    "equal to what FSDP1 and FSDP2 of torch 2.13 keep; lower bound: shared after each micro batch "
    "(sync_each_batch, torchtune)",
)

REFERENCE = Formula(
    "weights of the reference model",
    "q_trained * P_reference / shards",
    "trl's DPOTrainer (1.16): in the type of the trained model, shared where its weights are",
    "not measured",
)
SYNCS_EACH_BATCH = ("torchtune",)
"""Trainers that share gradients after each micro batch (its recipes have no no_sync)."""
BUFFERS = 1.5
DEEPSPEED = "DeepSpeed's memory estimators"
NOT_MEASURED = "not measured; upper bound: DeepSpeed's factor 1.5 for buffers and pinned memory"
OFFLOADED = {
    name: Formula(f"offloaded: {label}", f"R * {formula.expression}", DEEPSPEED, NOT_MEASURED)
    for name, formula in STATES.items()
    for label in ("gradients" if name == MAIN_GRADIENT else name,)
}
OFFLOADED_WEIGHTS = Formula(
    "offloaded: weights",
    "R * (q_trained * P_trained + q_frozen * P_frozen + q_quantized * P_quantized) / shards",
    f"{DEEPSPEED}: 2 B a parameter in 16 bit",
    NOT_MEASURED,
)

OFFLOADED_REFERENCE = Formula(
    f"offloaded: {REFERENCE.name}", f"R * {REFERENCE.expression}", REFERENCE.source, NOT_MEASURED
)
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
        unshared: gradients between micro batches, if FSDP shares them at the step only.
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
    unshared: Line | None
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
    """Return the states of a rank of a pipeline stage; by default of the stage with most states."""
    tensors = rank_tensors(model, training, stage)
    trained = tuple(share for share in tensors if share.trained)
    offloads, shared = training.offload != "none", sharding_of(training)
    # With offload the host holds the states and steps; only ZeRO-1 keeps gradients on the GPU.
    stepped = () if offloads else trained
    on_gpu = () if training.offload == "all" else tensors
    ranks = shards(training, shared=shared.optimizer)
    no_layers = is_counted(model) and shared.weights
    return States(
        weights=_weights_line(on_gpu, model, training),
        gradients=_gradients_line(() if offloads and shared.gradients else trained, training),
        unshared=_unshared_line(trained, training),
        optimizer=optimizer_lines(stepped, training, ranks),
        casts=cast_line(model, tensors, training),
        gathered=None if no_layers else gathered_line(tensors, training),
        buckets=None if no_layers else bucket_line(trained, training),
        flat_buffer=FLAT.line({"P_trained": count_among(trained, 1)})
        if training.flat_buffer
        else None,
        reference=REFERENCE.line(_reference_symbols(on_gpu, training)),
        step_temporary=step_line(stepped, training, ranks),
        host=_offloaded_lines(tensors, training),
        parameters=count_among(tensors, 1),
        trainable=count_among(trained, 1),
        tensors=tensors,
        leaves_out=tuple(_left_out(model, training)),
    )


def standing_bytes(model: Model, training: TrainingSettings) -> int:
    """Return the bytes of weights and optimizer states, the part of `rank_states` found soonest."""
    tensors = rank_tensors(model, training)
    offloads = training.offload != "none"
    stepped = () if offloads else tuple(share for share in tensors if share.trained)
    on_gpu = () if training.offload == "all" else tensors
    ranks = shards(training, shared=sharding_of(training).optimizer)
    lines = (
        _weights_line(on_gpu, model, training), *optimizer_lines(stepped, training, ranks)
    )  # fmt: skip
    return sum(line.n_bytes for line in lines)


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


def _weights_line(
    tensors: tuple[RankTensor, ...], model: Model, training: TrainingSettings
) -> Line:
    """Return the weights of a rank's `tensors`, and the model's buffers."""
    symbols = _weight_symbols(tensors, training) | {"buffers": model.buffer_bytes}
    more = 0.0
    if symbols["P_quantized"]:
        more = (FP32_BYTES - symbols["q_frozen"]) * symbols["P_frozen"] / symbols["shards"]
    return WEIGHTS.line(
        symbols,
        high_bytes=WEIGHTS.evaluate(symbols) + round(more),
        note=stored_note(model, training),
    )


def _reference_symbols(
    tensors: tuple[RankTensor, ...], training: TrainingSettings
) -> dict[str, float]:
    """Return the symbols of the reference model, whose tensors are those of the trained model.

    With adapters it has no tensors: the reference is the model with its adapters switched off.
    """
    ranks = shards(training, shared=sharding_of(training).weights)
    copied = tensors if training.reference_model and training.adapter == "none" else ()
    return {
        "q_trained": scheme_of(training).weight,
        "P_reference": count_among(copied, ranks),
        "shards": ranks,
    }


def _weight_symbols(tensors: Iterable[RankTensor], training: TrainingSettings) -> dict[str, float]:
    """Return bytes per element, and elements, of trained, frozen and quantized weights."""
    ranks = shards(training, shared=sharding_of(training).weights)
    symbols: dict[str, float] = {"shards": ranks}
    parts: dict[str, list[RankTensor]] = {"trained": [], "frozen": [], "quantized": []}
    for share in tensors:
        quantized = share.weight_bytes < PLAIN_BYTES["bf16"]
        part = "trained" if share.trained else "quantized" if quantized else "frozen"
        parts[part].append(share.among(ranks))
    for part, shares in parts.items():
        symbols[f"P_{part}"] = elements = sum(share.count for share in shares)
        n_bytes = sum(share.count * share.weight_bytes for share in shares)
        symbols[f"q_{part}"] = n_bytes / elements if elements else 0.0
    return symbols


def _gradients_line(trained: tuple[RankTensor, ...], training: TrainingSettings) -> Line:
    """Return the gradients of all `trained` tensors."""
    ranks = shards(training, shared=sharding_of(training).gradients)
    elements = count_among(trained, ranks)
    symbols = {"q_gradient": scheme_of(training).gradient, "P_trained": elements, "shards": ranks}
    expected = GRADIENTS.evaluate(symbols)
    buffered = training.accumulation > 1 and precision_of(training) == "mixed-16"
    buffer = round(FP32_BYTES * elements / ranks) if buffered else 0
    return GRADIENTS.line(symbols, high_bytes=expected + buffer)


def _unshared_line(trained: tuple[RankTensor, ...], training: TrainingSettings) -> Line | None:
    """Return the gradients of `trained` tensors that FSDP shares at the step, not before."""
    accumulates = training.accumulation > 1 and state_ranks(training) > 1
    fsdp = sharding_of(training).program == "fsdp"
    if not (accumulates and fsdp) or training.trainer in SYNCS_EACH_BATCH:
        return None
    symbols = {"q_computed": scheme_of(training).computed, "P_trained": count_among(trained, 1)}
    shared = _gradients_line(trained, training).n_bytes
    return UNSHARED.line(symbols, low_bytes=min(shared, UNSHARED.evaluate(symbols)))


def _offloaded_lines(
    tensors: tuple[RankTensor, ...], training: TrainingSettings
) -> tuple[Line, ...]:
    """Return the offloaded states of all ranks of a node.

    DeepSpeed and Megatron-LM step on fp32 copies of weights and gradients; FSDP on the types of the
    scheme.
    """
    if training.offload == "none":
        return ()
    trained = tuple(share for share in tensors if share.trained)
    scheme, ranks = scheme_of(training), {"R": ranks_per_node(training)}
    if sharding_of(training).program == "fsdp":
        scheme = replace(scheme, main_gradient=scheme.main_gradient + scheme.gradient)
    else:
        scheme = replace(scheme, master=FP32_BYTES, main_gradient=FP32_BYTES, moment=FP32_BYTES)
    kept = kept_states(trained, off_gpu(training.optimizer), scheme, state_ranks(training))
    lines = [_buffered(OFFLOADED[name], {**symbols, **ranks}) for name, symbols in kept.items()]
    if training.offload == "all":
        lines.append(_buffered(OFFLOADED_WEIGHTS, _weight_symbols(tensors, training) | ranks))
        reference = _buffered(OFFLOADED_REFERENCE, _reference_symbols(tensors, training) | ranks)
        lines += [reference] if reference.n_bytes else []
    return tuple(lines)


def _buffered(formula: Formula, symbols: Mapping[str, float]) -> Line:
    return formula.line(symbols, high_bytes=round(BUFFERS * formula.evaluate(symbols)))


def checkpoint_bill(model: Model, training: TrainingSettings) -> Bill:
    """Return the disk space of the checkpoints of a run: those kept, and one being written.

    The lower bound is without the one being written. A frozen base is not saved with its adapters.
    """
    alone = replace(training, **_ALONE, optimizer=off_gpu(training.optimizer))
    trained = [share for share in rank_tensors(model, alone) if share.trained]
    scheme = scheme_of(training)
    weights = {"q": scheme.weight, "P_trained": count_among(trained, 1)}
    saved = kept_states(trained, alone.optimizer, replace(scheme, main_gradient=0), 1)
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
