"""States that the ranks of a node offload to its host RAM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tokmill.bill.formula import Formula, Line
from tokmill.bill.states.optimizers import FP32_BYTES, MAIN_GRADIENT, STATES, kept_states, off_gpu
from tokmill.bill.states.parallel import RankTensor, ranks_per_node, state_ranks
from tokmill.bill.states.precision import scheme_of
from tokmill.bill.states.sharding import sharding_of
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
    trained = tuple(held for held in tensors if held.trained)
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
