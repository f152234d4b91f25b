"""States that are not on the GPU: in the host RAM of a node, and in checkpoints on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tokmill.bill.formula import Bill, Formula, Line
from tokmill.bill.models.model import Model
from tokmill.bill.states.contradictions import check_parallelism
from tokmill.bill.states.optimizers import FP32_BYTES, MAIN_GRADIENT, STATES, kept_states, off_gpu
from tokmill.bill.states.parallel import (
    RankTensor,
    count_among,
    rank_tensors,
    ranks_per_node,
    sharding_of,
    state_ranks,
)
from tokmill.bill.states.precision import scheme_of
from tokmill.bill.states.weights import REFERENCE, reference_symbols, weight_symbols
from tokmill.settings.training import TrainingSettings

BUFFERS = 1.5
_SOURCE = "DeepSpeed's memory estimators"
_ERROR = "not measured; upper bound: DeepSpeed's factor 1.5 for buffers and pinned memory"
OFFLOADED = {
    name: Formula(f"offloaded: {label}", f"R * {formula.expression}", _SOURCE, _ERROR)
    for name, formula in STATES.items()
    for label in ("gradients" if name == MAIN_GRADIENT else name,)
}
OFFLOADED_WEIGHTS = Formula(
    "offloaded: weights",
    "R * (q_trained * P_trained + q_frozen * P_frozen + q_quantized * P_quantized) / shards",
    f"{_SOURCE}: 2 B a parameter in 16 bit",
    _ERROR,
)

OFFLOADED_REFERENCE = Formula(
    f"offloaded: {REFERENCE.name}", f"R * {REFERENCE.expression}", REFERENCE.source, _ERROR
)


def offloaded_lines(
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
    lines = [_line(OFFLOADED[name], {**symbols, **ranks}) for name, symbols in kept.items()]
    if training.offload == "all":
        lines.append(_line(OFFLOADED_WEIGHTS, weight_symbols(tensors, training) | ranks))
        reference = _line(OFFLOADED_REFERENCE, reference_symbols(tensors, training) | ranks)
        lines += [reference] if reference.n_bytes else []
    return tuple(lines)


def _line(formula: Formula, symbols: Mapping[str, float]) -> Line:
    return formula.line(symbols, high_bytes=round(BUFFERS * formula.evaluate(symbols)))


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
    alone = replace(training, **_ALONE, optimizer=off_gpu(training.optimizer))
    check_parallelism(model, alone)
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
