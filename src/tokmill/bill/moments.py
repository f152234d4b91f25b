"""The moments of a training step that may be its peak, and the memory that is alive at each.

This follows from the order in which autograd works: the backward of a layer frees its activations
and makes the gradients of its weights; the gradient of a tied embedding waits for both its uses.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tokmill.bill.activations import metrics
from tokmill.bill.activations.adapters import GRADIENT_ADAPTER, forward_rows
from tokmill.bill.activations.amounts import kept_lines, rows_line, work_lines
from tokmill.bill.activations.layers import (
    CHECKPOINTS,
    HELD_BY_HOOKS,
    LAYER_INPUT,
    PRODUCTS,
    held_mask,
    kept_products,
    last_kept,
    outside_rows,
    selective_rows,
)
from tokmill.bill.activations.loss import (
    backward_line,
    forward_line,
    loss_lines,
    reference_lines,
)
from tokmill.bill.activations.megatron import megatron_outside
from tokmill.bill.activations.part import Part, final_norm
from tokmill.bill.activations.situation import Situation
from tokmill.bill.activations.weights import (
    casts_before,
    casts_lines,
    first_gradient,
    gradients_line,
    last_gradients,
    made_before,
    made_by_head,
    waiting_gradient,
)
from tokmill.bill.formula import Formula, Line
from tokmill.bill.models.model import Model
from tokmill.bill.states.buffers import gathered_line
from tokmill.bill.states.parallel import ranks_per_node, sharding_of
from tokmill.bill.states.states import States
from tokmill.settings.training import TrainingSettings

IN_FLIGHT = 1
"""Layers whose activations are still on the GPU during offload (trl keeps five tensors)."""
OFFLOADED = (
    "pinned host RAM, as in trl's OffloadActivations and DeepSpeed's cpu_checkpointing; the "
    "output head's activations stay on the GPU"
)
OFFLOADED_ERROR = "not measured; upper bound: pinned tensors are rounded up to powers of two"


@dataclass(frozen=True, slots=True)
class Stage:
    """A pipeline stage and all that decides its moments.

    `number` counts from 0. `layers` is the number of its layers, `held` the number of micro batches
    whose activations it keeps at the same time. `has_loss`: it is the last stage.
    """

    model: Model
    training: TrainingSettings
    states: States
    parts: tuple[Part, ...]
    at: Situation
    symbols: Mapping[str, float]
    layers: int
    held: float
    has_loss: bool
    number: int = 0

    @property
    def selective(self) -> bool:
        """Return whether a part of a layer is recomputed; in Megatron the rows omit that part."""
        return self.training.checkpointing == "selective" and self.training.framework == "hf"

    @property
    def recomputed(self) -> bool:
        """Return whether layers are recomputed in backward, completely or partly."""
        return self.selective or self.training.checkpointing == "full"


def moments_of(stage: Stage) -> Iterator[tuple[str, tuple[Line, ...]]]:
    """Yield the moments of a step that may be its peak, each with its lines."""
    states, training = stage.states, stage.training
    fsdp = sharding_of(training).program == "fsdp"
    buckets = _present(states.buckets)
    standing = (states.weights, states.reference, *states.optimizer, *(() if fsdp else buckets))
    if stage.has_loss:
        # Gathered weights still exist after the last layer, a dequantized matrix does not.
        gathered = _present(gathered_line(states.tensors, training, units=0))
        outside = (*standing, *(gathered if sharding_of(training).weights else ()))
        none = gradients_line(states, training, 0)
        kept = (*outside, none, *_kept(stage), *_outside(stage), *_loss(stage))
        ahead, behind = (line(training, stage.symbols) for line in (forward_line, backward_line))
        alive = 0 if stage.recomputed else stage.layers
        # Autocast caches the casts of trained weights only.
        cast = alive if training.adapter != "none" else stage.layers
        end = "forward of the reference model" if training.reference_model else "end of forward"
        beside = reference_lines(training, stage.symbols)
        yield end, (*kept, *_casts(stage, cast, head=True), ahead, *beside)
        yield "start of backward", (*kept, *_casts(stage, alive, head=True), behind)
        if training.framework == "hf":
            yield "backward of the final norm", (*outside, *_norm(stage))
    reduced = buckets if fsdp else ()
    for first in (False, True):
        name = "first" if first else "last"
        gathered = _present(gathered_line(states.tensors, training, units=1 if first else 2))
        working = (*standing, *gathered, *reduced)
        yield f"backward of the {name} layer", (*working, *_layer(stage, first=first))
    flat = _present(states.flat_buffer)
    yield "end of backward", (*working, *last_gradients(*_embedding(stage)), *flat)
    yield "optimizer's step", (*standing, states.gradients, *flat, states.step_temporary)
    if training.metric_batches and stage.has_loss and training.framework == "hf":
        yield from _evaluation(stage, (*standing, gradients_line(states, training, 0)))


def _evaluation(stage: Stage, standing: tuple[Line, ...]) -> Iterator[tuple[str, tuple[Line, ...]]]:
    """Yield the moments of an evaluation that keeps logits for metrics."""
    trained = stage.training.adapter == "none"
    casts = _casts(stage, stage.layers * trained, head=trained)
    there = stage.at, stage.training, stage.symbols
    yield "evaluation, forward", (*standing, *casts, *metrics.forward_lines(*there))
    yield "evaluation, logits joined", (*standing, *metrics.joined_lines(*there))


def moments_of_states(states: States) -> Iterator[tuple[str, tuple[Line, ...]]]:
    """Yield the moments of a model without a shape: its states and their buffers."""
    passing = (*_present(states.buckets), *_present(states.flat_buffer))
    standing = (
        states.weights, states.reference, *states.optimizer, states.gradients, *passing
    )  # fmt: skip
    yield "end of backward", (*standing, *_present(states.gathered))
    yield "optimizer's step", (*standing, states.step_temporary)


def _present(line: Line | None) -> tuple[Line, ...]:
    return () if line is None else (line,)


def offloaded_activations(stage: Stage) -> Iterator[Line]:
    """Yield the activations that the ranks of a node offload to its host RAM, a line per kind."""
    if not stage.training.activation_offload:
        return
    on_gpu = replace(stage, training=replace(stage.training, activation_offload=False))
    ranks = ranks_per_node(stage.training)
    for line in _kept(on_gpu):
        formula = Formula(
            f"offloaded {line.name}", f"R * ({line.formula})", OFFLOADED, OFFLOADED_ERROR
        )
        symbols = {**line.symbols, "R": ranks}
        yield formula.line(symbols, high_bytes=2 * formula.evaluate(symbols))


def _kept(stage: Stage) -> tuple[Line, ...]:
    return _kept_of(stage, stage.layers * stage.held)


def _kept_of(stage: Stage, layers: float) -> tuple[Line, ...]:
    """Return the activations of `layers` layers, those of all micro batches added."""
    if stage.training.activation_offload:
        layers = min(layers, IN_FLIGHT)
    symbols = {**stage.symbols, "layers_kept": layers}
    if stage.selective:
        symbols["w_products"] = kept_products(stage.at, symbols)
        rows = selective_rows(stage.at)
        return (rows_line("activations: kept of layers", rows, symbols, factor="n * layers_kept"),)
    if not stage.recomputed:
        first = math.ceil(layers / stage.layers) if stage.number == 0 else 0
        return kept_lines(stage.parts, layers, stage.symbols, first=first)
    mask = held_mask(stage.at) if stage.training.framework == "hf" else ()
    held = (rows_line("activations: mask", mask, stage.symbols),) if mask else ()
    return (CHECKPOINTS.line(symbols), *held)


def _outside(stage: Stage) -> tuple[Line, ...]:
    name = "activations: outside the layers"
    if stage.training.framework == "hf":
        return (rows_line(name, outside_rows(stage.at), stage.symbols),)
    rows = megatron_outside(stage.at, first=stage.number == 0, last=stage.has_loss)
    symbols = {**stage.symbols, "held": stage.held}
    return (rows_line(name, rows, symbols, factor="n * held"),) if rows else ()


def _loss(stage: Stage) -> tuple[Line, ...]:
    return loss_lines(stage.training, stage.symbols, capped=stage.at.style.soft_cap)


def _casts(stage: Stage, layers: float, *, head: bool, gone: int = 0) -> tuple[Line, ...]:
    return casts_lines(stage.model, stage.states, layers, of=stage.layers, head=head, gone=gone)


def _embedding(
    stage: Stage,
) -> tuple[Model, States, TrainingSettings, Mapping[str, float]]:
    return stage.model, stage.states, stage.training, stage.symbols


def _norm(stage: Stage) -> tuple[Line, ...]:
    """Return the backward of the final norm: the loss is freed, all activations are kept."""
    rows, gradients = final_norm(stage.at)
    return (
        gradients_line(stage.states, stage.training, made_by_head(stage.states)),
        *_kept(stage),
        *_casts(stage, 0 if stage.recomputed else stage.layers, head=False),
        *waiting_gradient(*_embedding(stage)),
        rows_line("activations: outside the layers", rows, stage.symbols),
        rows_line("gradients inside the norm", gradients, stage.symbols),
    )


def _layer(stage: Stage, *, first: bool) -> tuple[Line, ...]:
    """Return the largest moment in the backward of the stage's first or last layer.

    Earlier layers still keep their activations; of waiting micro batches all layers do.
    """
    others = stage.layers * (stage.held - 1)
    before = 0 if first else stage.layers - 1
    again = stage.recomputed and not stage.selective
    kept = (*_kept_of(stage, others + before + again), *_selected(stage))
    parts = stage.parts
    moments = [
        _part(stage, (*parts[:at], moment, *parts[at + 1 :]), at, first=first)
        for at, part in enumerate(parts)
        for moment in (part, *part.later)
    ]
    return (
        *max([*moments, _adapters(stage)], key=_total),
        *kept,
        *(_held_by_hooks(stage) if first else ()),
        *waiting_gradient(*_embedding(stage)),
    )


def holds_inputs(training: TrainingSettings) -> bool:
    """Return whether FSDP1 hooks the inputs of recomputed layers, as their base is frozen."""
    fsdp1 = training.sharding in ("fsdp", "fsdp-grad-op") and training.framework == "hf"
    recomputed = training.checkpointing == "full" and not training.activation_offload
    return fsdp1 and recomputed and training.adapter != "none"


def _held_by_hooks(stage: Stage) -> tuple[Line, ...]:
    """Return what FSDP1's hooks keep of the layers that backward has passed.

    Of the first layer the input is a checkpoint, of the second the gradient is one of this layer.
    """
    reentrant = stage.training.transformers == "4"
    if not holds_inputs(stage.training) or not reentrant or stage.layers < 2:
        return ()
    return (HELD_BY_HOOKS.line({**stage.symbols, "layers": stage.layers}),)


def _selected(stage: Stage) -> tuple[Line, ...]:
    """Return what selective checkpointing keeps of the layer in backward, besides what it saves.

    The other kept tensors are its saved ones, or gone once they were used.
    """
    if not stage.selective:
        return ()
    symbols = {**stage.symbols, "w_products": last_kept(stage.at, stage.symbols)}
    return (rows_line("activations: kept of this layer", (LAYER_INPUT, PRODUCTS), symbols),)


def _adapters(stage: Stage) -> tuple[Line, ...]:
    """Return a layer whose adapters run forward, for the first time or recomputed."""
    kept = tuple(row for part in stage.parts for row in part.saved)
    there = forward_rows(stage.at, kept) if stage.training.framework == "hf" else ()
    if not there:
        return ()
    gradients = (GRADIENT_ADAPTER,) if stage.recomputed else ()
    named = (("activations: layer in forward", there), ("gradients inside the layer", gradients))
    lines = (rows_line(name, rows, stage.symbols) for name, rows in named if rows)
    return (*lines, *_casts(stage, 1 if stage.recomputed else stage.layers, head=False))


def _part(stage: Stage, parts: tuple[Part, ...], at: int, *, first: bool) -> tuple[Line, ...]:
    states = stage.states
    layers = 1 if first or stage.recomputed else stage.layers
    gone = casts_before(states, parts, at, first=first)
    return (
        gradients_line(states, stage.training, made_before(states, parts, at, first=first)),
        *first_gradient(states, parts, at, first=first),
        *work_lines(parts, at, stage.symbols, recomputed=stage.recomputed),
        *_casts(stage, layers, head=False, gone=gone),
    )


def _total(lines: tuple[Line, ...]) -> int:
    return sum(line.n_bytes for line in lines)
