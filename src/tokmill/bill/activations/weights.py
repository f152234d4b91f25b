"""Gradients and 16-bit casts of weights that exist at a moment of backward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tokmill.bill.activations.amounts import rows_line
from tokmill.bill.activations.part import GRADIENT_RESIDUAL, STEPS, Part
from tokmill.bill.formula import Formula, Line
from tokmill.bill.models.model import Model
from tokmill.bill.states.buffers import CASTS
from tokmill.bill.states.optimizers import FP32_BYTES
from tokmill.bill.states.parallel import RankTensor, sharding_of
from tokmill.bill.states.states import States
from tokmill.bill.states.weights import GRADIENTS
from tokmill.settings.training import TrainingSettings

JUST_MADE = Formula(
    "gradient of a weight, just made", "q_gradient * P_made / shards", STEPS, "exact"
)
TIED_WAITING = Formula(
    "gradient of the tied head, kept until the embedding's", "q_gradient * P_table", STEPS,
    "exact",
)  # fmt: skip
TIED_SUM = Formula(
    "gradients of the tied embedding: two, and their sum", "3 * q_gradient * P_table", STEPS,
    "exact",
)  # fmt: skip


def stay(training: TrainingSettings) -> bool:
    """Return whether gradients exist all the time, instead of being created in each backward.

    DeepSpeed's ZeRO-3 allocates its shard of them once, before the first step (stage3.py,
    grad_partitions_flat_buffer).
    """
    lasting = sharding_of(training).program == "megatron" or training.sharding == "zero-3"
    return lasting or training.accumulation > 1


def gradients_line(states: States, training: TrainingSettings, elements: int) -> Line:
    """Return the gradients when those of `elements` of the rank's trained elements exist."""
    if stay(training) or not states.trainable:
        return states.gradients
    symbols = states.gradients.symbols
    made = round(symbols["P_trained"] * elements / states.trainable)
    return GRADIENTS.line({**symbols, "P_trained": made})


def made_by_head(states: States) -> int:
    """Return the trained elements of a head that is not tied; their gradients are made first."""
    return sum(
        held.size for held in states.tensors if held.trained and held.tensor.module == "head"
    )


def made_before(states: States, parts: Sequence[Part], at: int, *, first: bool) -> int:
    """Return the elements whose gradients exist at the largest moment of part `at` of a layer.

    Backward has then passed the head, all later layers (for the `first` layer: all others), the
    layer's later parts, and the last matrix of this part.
    """
    trained = [held for held in states.tensors if held.trained]
    here = _layer(states, first=first)
    outside = sum(h.size for h in trained if h.layers is None and h.tensor.kind != "embedding")
    later = sum(h.size * sum(layer > here for layer in h.layers or ()) for h in trained)
    return outside + later + sum(h.size for h in _passed(trained, parts, at, here))


def casts_before(states: States, parts: Sequence[Part], at: int, *, first: bool) -> int:
    """Return the elements of a layer's casts that are freed before the largest moment of a part."""
    matrices = [
        held
        for held in states.tensors
        if held.tensor.kind == "linear" and held.weight_bytes == FP32_BYTES
    ]
    return sum(h.size for h in _passed(matrices, parts, at, _layer(states, first=first)))


def _layer(states: States, *, first: bool) -> int:
    layers = {layer for held in states.tensors for layer in held.layers or ()}
    return (min if first else max)(layers, default=0)


def _passed(
    tensors: Iterable[RankTensor], parts: Sequence[Part], at: int, layer: int
) -> Iterator[RankTensor]:
    """Yield the tensors of a layer that backward has passed."""
    own, later = parts[at], {part.module for part in parts[at + 1 :]}
    for held in tensors:
        last = held.tensor.module == own.module and held.tensor.split == "rows"
        passed = last and own.made != "none"
        if layer in (held.layers or ()) and (passed or held.tensor.module in later):
            yield held


def first_gradient(
    states: States, parts: Sequence[Part], at: int, *, first: bool
) -> tuple[Line, ...]:
    """Return the gradients of a part's first matrices, if its largest moment is their creation."""
    own, layer = parts[at], _layer(states, first=first)
    elements = sum(
        held.size
        for held in states.tensors
        if held.trained
        and held.tensor.module == own.module
        and held.tensor.split != "rows"
        and layer in (held.layers or ())
    )
    return (_just_made(states, elements),) if own.made == "all" else ()


def _just_made(states: States, elements: int) -> Line:
    return JUST_MADE.line({**states.gradients.symbols, "P_made": elements})


def casts_lines(
    model: Model, states: States, layers: float, *, of: int, head: bool, gone: int = 0
) -> tuple[Line, ...]:
    """Return autocast's casts of `layers` layers of a stage, except `gone`, and of the head."""
    if states.casts is None:
        return ()
    whole = states.casts.symbols["P_cast"]
    in_head = _head_elements(model, states.tensors)
    inside = max((whole - in_head) * layers / of - gone, 0)
    return (CASTS.line({"P_cast": round(inside + in_head * head)}),)


def _head_elements(model: Model, tensors: Iterable[RankTensor]) -> int:
    """Return the elements of a fp32 head, or of the embedding if it is tied."""
    module = "embedding" if model.tied else "head"
    return sum(
        held.size
        for held in tensors
        if held.tensor.module == module
        and held.tensor.split == "vocabulary"
        and held.weight_bytes == FP32_BYTES
    )


def waiting_gradient(
    model: Model, states: States, training: TrainingSettings, symbols: Mapping[str, float]
) -> tuple[Line, ...]:
    """Return the gradient of a tied head, which waits for the embedding's."""
    if not _one_gradient(model, training):
        return ()
    return (TIED_WAITING.line({**symbols, "P_table": _table(states)}),)


def last_gradients(
    model: Model, states: States, training: TrainingSettings, symbols: Mapping[str, float]
) -> tuple[Line, ...]:
    """Return the gradients when that of the embedding is made, which is last."""
    table = _table(states)
    if training.adapter != "none" or training.framework != "hf" or not table:
        return (states.gradients,)
    made = gradients_line(states, training, states.trainable - table)
    if _one_gradient(model, training):
        return made, TIED_SUM.line({**symbols, "P_table": table})
    output = rows_line("gradient of the embedding's output", (GRADIENT_RESIDUAL,), symbols)
    return made, _just_made(states, table), output


def _one_gradient(model: Model, training: TrainingSettings) -> bool:
    """Return whether a tied embedding has one gradient for both uses; not in Megatron."""
    trained = training.adapter == "none" and training.framework == "hf"
    return model.tied and trained and training.pipeline_parallel == 1


def _table(states: States) -> int:
    """Return the elements of the token embedding, which is narrower than d in opt-350m."""
    return sum(
        held.size
        for held in states.tensors
        if held.tensor.kind == "embedding" and held.tensor.split == "vocabulary"
    )
