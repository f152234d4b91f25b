"""The moments of a training step that may be its peak, and the memory that is alive at each.

This follows from the order in which autograd works: the backward of a layer frees its activations
and makes the gradients of its weights; the gradient of a tied embedding waits for both its uses.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from tokmill.bill.activations import metrics
from tokmill.bill.activations.adapters import GRADIENT_ADAPTER, forward_rows
from tokmill.bill.activations.layers import (
    CHECKPOINTS,
    HELD_BY_HOOKS,
    LAYER_INPUT,
    PRODUCTS,
    kept_products,
    last_kept,
    outside_rows,
    selective_rows,
    shared_mask,
)
from tokmill.bill.activations.loss import backward_line, forward_line, loss_lines, reference_lines
from tokmill.bill.activations.megatron import megatron_outside
from tokmill.bill.activations.part import Part, final_norm, kept_lines, rows_line, work_lines
from tokmill.bill.activations.stage import (
    Stage,
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
from tokmill.bill.states.buffers import gathered_line
from tokmill.bill.states.parallel import ranks_per_node, sharding_of
from tokmill.bill.states.states import States
from tokmill.settings.training import TrainingSettings

Lines = tuple[Line, ...]
Moments = Iterator[tuple[str, Lines]]
"""The title of each moment, and its lines."""

LAYERS_ON_GPU = 1
"""Layers whose activations are still on the GPU during offload (trl keeps five tensors)."""
OFFLOADED = (
    "pinned host RAM, as in trl's OffloadActivations and DeepSpeed's cpu_checkpointing; the "
    "output head's activations stay on the GPU"
)
OFFLOADED_ERROR = "not measured; upper bound: pinned tensors are rounded up to powers of two"


def moments_of(stage: Stage) -> Moments:
    """Yield the moments of a step that may be its peak, each with its lines."""
    states, training = stage.states, stage.training
    fsdp = sharding_of(training).program == "fsdp"
    buckets, flat = _present(states.buckets), _present(states.flat_buffer)
    standing = (states.weights, states.reference, *states.optimizer, *(() if fsdp else buckets))
    if stage.has_loss:
        yield from _moments_of_loss(stage, standing)
    for first, name in ((False, "last"), (True, "first")):
        gathered = _present(gathered_line(states.tensors, training, units=1 if first else 2))
        working = (*standing, *gathered, *(buckets if fsdp else ()))
        yield f"backward of the {name} layer", (*working, *_layer_backward(stage, first=first))
    yield "end of backward", (*working, *last_gradients(stage), *flat)
    yield "optimizer's step", (*standing, states.gradients, *flat, states.step_temporary)
    if training.metric_batches and stage.has_loss and stage.is_hf:
        yield from _evaluation(stage, (*standing, gradients_line(stage, 0)))


def _moments_of_loss(stage: Stage, standing: Lines) -> Moments:
    """Yield the moments at which logits are there, and the backward of the final norm."""
    states, training, symbols = stage.states, stage.training, stage.symbols
    # Gathered weights still exist after the last layer, a dequantized matrix does not.
    gathered = _present(gathered_line(states.tensors, training, units=0))
    outside = (*standing, *(gathered if sharding_of(training).weights else ()))
    loss = loss_lines(training, symbols, capped=stage.facts.style.soft_cap)
    kept = (
        *outside, gradients_line(stage, 0), *_all_kept(stage), *_kept_outside(stage), *loss
    )  # fmt: skip
    alive = 0 if stage.recomputed else stage.layers
    # Autocast caches the casts of trained weights only.
    cast = alive if training.adapter != "none" else stage.layers
    ahead = (forward_line(training, symbols), *reference_lines(training, symbols))
    end = "forward of the reference model" if training.reference_model else "end of forward"
    yield end, (*kept, *casts_lines(stage, cast, head=True), *ahead)
    behind = backward_line(training, symbols)
    yield "start of backward", (*kept, *casts_lines(stage, alive, head=True), behind)
    if stage.is_hf:
        yield "backward of the final norm", (*outside, *_norm_backward(stage))


def _evaluation(stage: Stage, standing: Lines) -> Moments:
    """Yield the moments of an evaluation that keeps logits for metrics."""
    trained = stage.training.adapter == "none"
    casts = casts_lines(stage, stage.layers * trained, head=trained)
    batch = stage.facts, stage.training, stage.symbols
    yield "evaluation, forward", (*standing, *casts, *metrics.forward_lines(*batch))
    yield "evaluation, logits joined", (*standing, *metrics.joined_lines(*batch))


def moments_of_states(states: States) -> Moments:
    """Yield the moments of a model without a shape: its states and their buffers."""
    passing = (*_present(states.buckets), *_present(states.flat_buffer))
    standing = (
        states.weights, states.reference, *states.optimizer, states.gradients, *passing
    )  # fmt: skip
    yield "end of backward", (*standing, *_present(states.gathered))
    yield "optimizer's step", (*standing, states.step_temporary)


def _present(line: Line | None) -> Lines:
    return () if line is None else (line,)


def offloaded_activations(stage: Stage) -> Iterator[Line]:
    """Yield the activations that the ranks of a node offload to its host RAM, a line per kind."""
    if not stage.training.activation_offload:
        return
    on_gpu = replace(stage, training=replace(stage.training, activation_offload=False))
    for line in _all_kept(on_gpu):
        formula = Formula(
            f"offloaded {line.name}", f"R * ({line.formula})", OFFLOADED, OFFLOADED_ERROR
        )
        symbols = {**line.symbols, "R": ranks_per_node(stage.training)}
        yield formula.line(symbols, high_bytes=2 * formula.evaluate(symbols))


def _all_kept(stage: Stage) -> Lines:
    return _kept(stage, stage.layers * stage.in_flight)


def _kept(stage: Stage, layers: float) -> Lines:
    """Return the activations of `layers` layers, those of all micro batches added."""
    if stage.training.activation_offload:
        layers = min(layers, LAYERS_ON_GPU)
    symbols = {**stage.symbols, "layers_kept": layers}
    if stage.selective:
        symbols["w_products"] = kept_products(stage.facts, symbols)
        rows = selective_rows(stage.facts)
        return (rows_line("activations: kept of layers", rows, symbols, factor="n * layers_kept"),)
    if not stage.recomputed:
        of_first = math.ceil(layers / stage.layers) if stage.number == 0 else 0
        return kept_lines(stage.parts, layers, stage.symbols, first=of_first)
    mask = shared_mask(stage.facts) if stage.is_hf else ()
    masks = (rows_line("activations: mask", mask, stage.symbols),) if mask else ()
    return (CHECKPOINTS.line(symbols), *masks)


def _kept_outside(stage: Stage) -> Lines:
    """Return the activations before and after the layers, without the loss."""
    name = "activations: outside the layers"
    if stage.is_hf:
        return (rows_line(name, outside_rows(stage.facts), stage.symbols),)
    rows = megatron_outside(stage.facts, first=stage.number == 0, last=stage.has_loss)
    symbols = {**stage.symbols, "held": stage.in_flight}
    return (rows_line(name, rows, symbols, factor="n * held"),) if rows else ()


def _norm_backward(stage: Stage) -> Lines:
    """Return the backward of the final norm: the loss is freed, all activations are kept."""
    rows, gradients = final_norm(stage.facts)
    return (
        gradients_line(stage, made_by_head(stage)),
        *_all_kept(stage),
        *casts_lines(stage, 0 if stage.recomputed else stage.layers),
        *waiting_gradient(stage),
        rows_line("activations: outside the layers", rows, stage.symbols),
        rows_line("gradients inside the norm", gradients, stage.symbols),
    )


def _layer_backward(stage: Stage, *, first: bool) -> Lines:
    """Return the largest moment in the backward of the stage's first or last layer.

    Earlier layers still keep their activations; of waiting micro batches all layers do. Of a layer
    that is recomputed as a whole, the input is kept.
    """
    waiting = stage.layers * (stage.in_flight - 1)
    earlier = 0 if first else stage.layers - 1
    input_kept = stage.recomputed and not stage.selective
    parts = stage.parts
    moments = [
        _part_backward(stage, (*parts[:index], moment, *parts[index + 1 :]), index, first=first)
        for index, part in enumerate(parts)
        for moment in (part, *part.later)
    ]
    return (
        *max([*moments, _adapters_forward(stage)], key=_total),
        *_kept(stage, waiting + earlier + input_kept),
        *(_selected(stage) if stage.selective else ()),
        *(_held_by_hooks(stage) if first else ()),
        *waiting_gradient(stage),
    )


def _part_backward(stage: Stage, parts: tuple[Part, ...], index: int, *, first: bool) -> Lines:
    """Return the largest moment in the backward of part `index` of a layer."""
    layers = 1 if first or stage.recomputed else stage.layers
    freed = casts_before(stage, parts, index, first=first)
    return (
        gradients_line(stage, made_before(stage, parts, index, first=first)),
        *first_gradient(stage, parts[index], first=first),
        *work_lines(parts, index, stage.symbols, recomputed=stage.recomputed),
        *casts_lines(stage, layers, freed=freed),
    )


def _adapters_forward(stage: Stage) -> Lines:
    """Return a layer whose adapters run forward, for the first time or recomputed."""
    kept = tuple(row for part in stage.parts for row in part.saved)
    rows = forward_rows(stage.facts, kept) if stage.is_hf else ()
    if not rows:
        return ()
    gradients = (GRADIENT_ADAPTER,) if stage.recomputed else ()
    named = (("activations: layer in forward", rows), ("gradients inside the layer", gradients))
    lines = (rows_line(name, some, stage.symbols) for name, some in named if some)
    return (*lines, *casts_lines(stage, 1 if stage.recomputed else stage.layers))


def _selected(stage: Stage) -> Lines:
    """Return what selective checkpointing keeps of the layer in backward, besides what it saves.

    The other kept tensors are its saved ones, or gone once they were used.
    """
    symbols = {**stage.symbols, "w_products": last_kept(stage.facts, stage.symbols)}
    return (rows_line("activations: kept of this layer", (LAYER_INPUT, PRODUCTS), symbols),)


def hooks_inputs(training: TrainingSettings) -> bool:
    """Return whether FSDP1 hooks the inputs of recomputed layers, as their base is frozen."""
    fsdp1 = training.sharding in ("fsdp", "fsdp-grad-op") and training.framework == "hf"
    recomputed = training.checkpointing == "full" and not training.activation_offload
    return fsdp1 and recomputed and training.adapter != "none"


def _held_by_hooks(stage: Stage) -> Lines:
    """Return what FSDP1's hooks keep of the layers that backward has passed.

    Of the first layer the input is a checkpoint, of the second the gradient is one of this layer.
    """
    reentrant = stage.training.transformers == "4"
    if not hooks_inputs(stage.training) or not reentrant or stage.layers < 2:
        return ()
    return (HELD_BY_HOOKS.line({**stage.symbols, "layers": stage.layers}),)


def _total(lines: Lines) -> int:
    return sum(line.n_bytes for line in lines)
