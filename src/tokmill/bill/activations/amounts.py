"""Lines of a bill from rows of activations, and gradients and casts of weights beside them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tokmill.bill.formula import Formula
from tokmill.bill.states.buffers import CASTS
from tokmill.bill.states.weights import GRADIENTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tokmill.bill.activations.layers import Part
    from tokmill.bill.formula import Line
    from tokmill.bill.models.model import Model
    from tokmill.bill.states.parallel import RankTensor
    from tokmill.bill.states.states import States
    from tokmill.settings.training import TrainingSettings


STEPS = "sum of the rows in the note; each has its own formula"

CHECKPOINTS = Formula(
    "activations: inputs of checkpointed layers", "n * layers_kept * x * d",
    "torch.utils.checkpoint, not reentrant; seen on fake tensors", "exact",
)  # fmt: skip

CHECKPOINTS_SPLIT = Formula(
    "activations: inputs of checkpointed layers", "n * layers_kept * x * d / t",
    "sequence parallelism: a layer's input is split between the GPUs", "not measured",
)  # fmt: skip


def summed(rows: Sequence[Formula]) -> str:
    """Return the expression of a sum of rows; equal ones are multiplied."""
    counted = Counter(row.expression for row in rows)
    return " + ".join(f"{n} * ({text})" if n > 1 else text for text, n in counted.items())


def rows_line(
    name: str, rows: Sequence[Formula], symbols: Mapping[str, float], *, factor: str = "n"
) -> Line:
    """Return the line of rows, in bytes per token, times `factor`; its note names them."""
    errors = ", ".join(sorted({row.error for row in rows if row.error}))
    sources = ", ".join(sorted({row.source for row in rows if row.source}))
    formula = Formula(name, f"{factor} * ({summed(rows)})", sources, errors)
    counted = Counter(row.name for row in rows)
    note = "; ".join(f"{n} x {text}" if n > 1 else text for text, n in counted.items())
    return formula.line(symbols, note=note)


def kept_lines(
    parts: Sequence[Part], kept: float, symbols: Mapping[str, float]
) -> tuple[Line, ...]:
    """Return what `kept` layers keep, counted over micro batches, a line for each part."""
    layers = max(part.n_layers for part in parts)
    return tuple(
        rows_line(
            f"activations: {part.name}",
            part.saved,
            {**symbols, "layers_kept": kept * part.n_layers / layers},
            factor="n * layers_kept",
        )
        for part in parts
    )


def work_lines(
    parts: Sequence[Part], at: int, symbols: Mapping[str, float], *, recomputed: bool
) -> tuple[Line, ...]:
    """Return one layer at the greatest moment of part `at`'s backward: what is kept, and gradients.

    The input of a recomputed layer stands among the checkpoints already.
    """
    kept = [row for part in parts[:at] for row in part.saved] + list(parts[at].left)
    if recomputed and parts[0].shared in kept:
        kept.remove(parts[0].shared)
    named = (
        ("activations: layer in backward", kept),
        ("gradients inside the layer", parts[at].gradients),
    )
    return tuple(rows_line(name, rows, symbols) for name, rows in named if rows)


def stay(training: TrainingSettings) -> bool:
    """Return whether gradients are there all the time, and not made anew in each backward."""
    lasting = training.framework == "megatron" or training.sharding == "distributed-optimizer"
    return lasting or training.accumulation > 1


def gradients_line(states: States, training: TrainingSettings, elements: int) -> Line:
    """Return the gradients when those of so many elements are made, of the rank's trained ones."""
    if stay(training) or not states.trainable:
        return states.gradients
    symbols = states.gradients.symbols
    made = round(symbols["P_trained"] * elements / states.trainable)
    return GRADIENTS.line({**symbols, "P_trained": made})


def made_by_head(states: States) -> int:
    """Return the trained elements of a head that is no embedding: backward makes them first."""
    return sum(
        held.size for held in states.tensors if held.trained and held.tensor.module == "head"
    )


def made_before(states: States, parts: Sequence[Part], at: int, *, first: bool) -> int:
    """Return the elements whose gradients are made when part `at` of a layer is at its greatest.

    Backward has then passed the head, all later layers (of the `first` layer: all others), the
    layer's later parts, and the last matrix of this one.
    """
    trained = [held for held in states.tensors if held.trained]
    here = _layer(states, first=first)
    outside = sum(h.size for h in trained if h.layers is None and h.tensor.kind != "embedding")
    later = sum(h.size * sum(layer > here for layer in h.layers or ()) for h in trained)
    return outside + later + sum(h.size for h in _passed(trained, parts, at, here))


def casts_before(states: States, parts: Sequence[Part], at: int, *, first: bool) -> int:
    """Return the elements of a layer's casts that are gone when part `at` is at its greatest."""
    matrices = [held for held in states.tensors if held.tensor.kind == "linear"]
    return sum(h.size for h in _passed(matrices, parts, at, _layer(states, first=first)))


def _layer(states: States, *, first: bool) -> int:
    layers = {layer for held in states.tensors for layer in held.layers or ()}
    return (min if first else max)(layers, default=0)


def _passed(
    tensors: Iterable[RankTensor], parts: Sequence[Part], at: int, layer: int
) -> Iterator[RankTensor]:
    """Yield the tensors of a layer that backward has passed."""
    later = {part.module for part in parts[at + 1 :]}
    for held in tensors:
        last = held.tensor.module == parts[at].module and held.tensor.split == "rows"
        if layer in (held.layers or ()) and (last or held.tensor.module in later):
            yield held


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
    """Return the elements of the head, which tied is the table of ids."""
    module = "embedding" if model.tied else "head"
    return sum(
        held.size
        for held in tensors
        if held.tensor.module == module and held.tensor.split == "vocabulary"
    )
