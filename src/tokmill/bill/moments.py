"""The moments of a training step that may be its peak, and the memory that is alive at each.

This follows from the order in which autograd works: the backward of a layer frees its activations
and makes the gradients of its weights; the gradient of a tied embedding waits for both its uses.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tokmill.bill.activations.layers import (
    CHECKPOINTS,
    HELD_BY_HOOKS,
    kept_products,
    outside_rows,
    selective_rows,
    shared_mask,
)
from tokmill.bill.activations.loss import (
    backward_line,
    forward_line,
    loss_lines,
    metrics_forward_lines,
    metrics_joined_lines,
    reference_lines,
)
from tokmill.bill.activations.megatron import megatron_outside
from tokmill.bill.activations.part import (
    GRADIENT_ADAPTER,
    GRADIENT_RESIDUAL,
    Part,
    final_norm,
    forward_rows,
    in_passing,
    kept_lines,
    rows_line,
    work_lines,
)
from tokmill.bill.activations.situation import Situation
from tokmill.bill.formula import Formula, Line
from tokmill.bill.models.model import Model
from tokmill.bill.states.buffers import CASTS, gathered_line
from tokmill.bill.states.optimizers import FP32_BYTES
from tokmill.bill.states.parallel import RankTensor, ranks_per_node, sharding_of
from tokmill.bill.states.states import GRADIENTS, States
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
JUST_MADE = in_passing("gradient of a weight, just made", "q_gradient * P_made / shards")
TIED_WAITING = in_passing(
    "gradient of the tied head, kept until the embedding's", "q_gradient * P_table"
)
TIED_SUM = in_passing(
    "gradients of the tied embedding: two, and their sum", "3 * q_gradient * P_table"
)


@dataclass(frozen=True, slots=True)
class Stage:
    """A pipeline stage and all that decides its moments.

    `number` counts from 0. `numbers` are those of its layers, `in_flight` is the number of micro
    batches whose activations it keeps at the same time. `has_loss`: it is the last stage.
    """

    model: Model
    training: TrainingSettings
    states: States
    parts: tuple[Part, ...]
    facts: Situation
    symbols: Mapping[str, float]
    numbers: tuple[int, ...]
    in_flight: float
    has_loss: bool
    number: int = 0

    @property
    def layers(self) -> int:
        """Return the number of its layers."""
        return len(self.numbers)

    @property
    def is_hf(self) -> bool:
        """Return whether its modules are Hugging Face's, not Megatron's."""
        return self.training.framework == "hf"

    @property
    def selective(self) -> bool:
        """Return whether a part of a layer is recomputed; in Megatron the rows omit that part."""
        return self.training.checkpointing == "selective" and self.is_hf

    @property
    def recomputed(self) -> bool:
        """Return whether layers are recomputed in backward, completely or partly."""
        return self.selective or self.training.checkpointing == "full"

    @property
    def tied_gradient(self) -> bool:
        """Return whether a tied embedding has one gradient for both uses; not in Megatron."""
        trained = self.training.adapter == "none" and self.is_hf
        return self.model.tied and trained and self.training.pipeline_parallel == 1

    @property
    def table(self) -> int:
        """Return the elements of the token embedding, which is narrower than d in opt-350m."""
        return _elements(_of_vocabulary(self.states.tensors, "embedding"))


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
    yield "end of backward", (*working, *_last_gradients(stage), *flat)
    gradients = () if steps_in_backward(training) else (states.gradients,)
    yield "optimizer's step", (*standing, *gradients, *flat, states.step_temporary)
    if training.metric_batches and stage.has_loss and stage.is_hf:
        yield from _evaluation(stage, (*standing, _gradients_line(stage, 0)))


def steps_in_backward(training: TrainingSettings) -> bool:
    """Return whether the gradient of each weight is used and freed as soon as it is made."""
    return training.optimizer_step == "backward"


def _moments_of_loss(stage: Stage, standing: Lines) -> Moments:
    """Yield the moments at which logits are there, and the backward of the final norm."""
    states, training, symbols = stage.states, stage.training, stage.symbols
    # Gathered weights still exist after the last layer, a dequantized matrix does not.
    gathered = _present(gathered_line(states.tensors, training, units=0))
    outside = (*standing, *(gathered if sharding_of(training).weights else ()))
    loss = loss_lines(training, symbols, capped=stage.facts.style.soft_cap)
    kept = (
        *outside, _gradients_line(stage, 0), *_all_kept(stage), *_kept_outside(stage), *loss
    )  # fmt: skip
    alive = 0 if stage.recomputed else stage.layers
    # Autocast caches the casts of trained weights only.
    cast = alive if training.adapter != "none" else stage.layers
    ahead = (forward_line(training, symbols), *reference_lines(training, symbols))
    end = "forward of the reference model" if training.reference_model else "end of forward"
    yield end, (*kept, *_casts_lines(stage, cast, head=True), *ahead)
    behind = backward_line(training, symbols)
    yield "start of backward", (*kept, *_casts_lines(stage, alive, head=True), behind)
    if stage.is_hf:
        yield "backward of the final norm", (*outside, *_norm_backward(stage))


def _evaluation(stage: Stage, standing: Lines) -> Moments:
    """Yield the moments of an evaluation that keeps logits for metrics."""
    trained = stage.training.adapter == "none"
    casts = _casts_lines(stage, stage.layers * trained, head=trained)
    batch = stage.facts, stage.training, stage.symbols
    yield "evaluation, forward", (*standing, *casts, *metrics_forward_lines(*batch))
    yield "evaluation, logits joined", (*standing, *metrics_joined_lines(*batch))


def moments_of_states(states: States) -> Moments:
    """Yield the moments of a model without a shape: its states and their buffers."""
    passing = (*_present(states.buckets), *_present(states.flat_buffer))
    standing = (states.weights, states.reference, *states.optimizer, *passing)
    waiting = states.unshared or states.gradients
    yield "end of backward", (*standing, waiting, *_present(states.gathered))
    yield "optimizer's step", (*standing, states.gradients, states.step_temporary)


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
    return _kept(stage, stage.in_flight)


def _kept(stage: Stage, micro_batches: float, numbers: Sequence[int] = ()) -> Lines:
    """Return the activations of all layers of micro batches, and of layers `numbers` of one more.

    Those of all micro batches are added.
    """
    layers, share = stage.layers * micro_batches + len(numbers), 1.0
    if stage.training.activation_offload and layers > LAYERS_ON_GPU:
        layers, share = LAYERS_ON_GPU, LAYERS_ON_GPU / layers
    symbols = {**stage.symbols, "layers_kept": layers}
    if stage.selective:
        symbols["w_products"] = kept_products(stage.facts, symbols)
        rows = selective_rows(stage.facts)
        return (rows_line("activations: kept of layers", rows, symbols, factor="n * layers_kept"),)
    if not stage.recomputed:
        of_first = math.ceil(layers / stage.layers) if stage.number == 0 else 0
        some = frozenset(numbers)
        return kept_lines(
            stage.parts,
            lambda part: share * (len(part.layers) * micro_batches + len(some & {*part.layers})),
            stage.symbols,
            first=of_first,
        )
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
    tensors = stage.states.tensors
    head = [each for each in tensors if each.trained and each.tensor.module == "head"]
    return (
        _gradients_line(stage, _elements(head)),
        *_all_kept(stage),
        *_casts_lines(stage, 0 if stage.recomputed else stage.layers),
        *_waiting_gradient(stage),
        rows_line("activations: outside the layers", rows, stage.symbols),
        rows_line("gradients inside the norm", gradients, stage.symbols),
    )


def _layer_backward(stage: Stage, *, first: bool) -> Lines:
    """Return the largest moment in the backward of the stage's first or last layer of each kind.

    Earlier layers still keep their activations; of waiting micro batches all layers do. Of a layer
    that is recomputed as a whole, the input is kept.
    """
    moments: list[Lines] = []
    for number, parts in _layers_of_each_kind(stage, first=first):
        input_kept = stage.recomputed and not stage.selective
        earlier = [other for other in stage.numbers if other < number + input_kept]
        kept = _kept(stage, stage.in_flight - 1, earlier)
        forward = _adapters_forward(stage, parts)
        moments += [(*forward, *kept)] if forward else []
        for index, part in enumerate(parts):
            for moment in (part, *part.later):
                at = (*parts[:index], moment, *parts[index + 1 :])
                moments.append((*_part_backward(stage, at, index, number, first=first), *kept))
    return (
        *max(moments, key=lambda lines: sum(line.n_bytes for line in lines)),
        *(_held_by_hooks(stage) if first else ()),
        *_waiting_gradient(stage),
    )


def _layers_of_each_kind(stage: Stage, *, first: bool) -> Iterator[tuple[int, tuple[Part, ...]]]:
    """Yield the number and the parts of the first or last layer with the same parts."""
    found: dict[tuple[int, ...], int] = {}
    numbers = reversed(stage.numbers) if first else stage.numbers
    for number in numbers:
        own = tuple(i for i, part in enumerate(stage.parts) if number in part.layers)
        found[own] = number
    for own, number in found.items():
        yield number, tuple(stage.parts[i] for i in own)


def _part_backward(
    stage: Stage, parts: tuple[Part, ...], index: int, number: int, *, first: bool
) -> Lines:
    """Return the largest moment in the backward of part `index` of layer `number`.

    Backward has then passed the head, all later layers (for the `first` layer: all others), and
    some tensors of this layer. Their gradients exist, and their casts are freed.
    """
    own = parts[index]
    layer = [each for each in stage.states.tensors if _has_layer(each, number)]
    passed = _passed(layer, own, parts[index + 1 :])
    lines = [_gradients_line(stage, _made_gradients(stage, number, passed))]
    if own.made == "all":
        lines.append(_just_made(stage, _elements(_made_with(layer, own))))
    # Casts of later layers are gone; a recomputed layer has only its own.
    layers_cast = 1 if first or stage.recomputed else stage.layers
    return (
        *lines,
        *work_lines(parts, index, stage.symbols, recomputed=stage.recomputed),
        *_casts_lines(stage, layers_cast, freed=_freed_casts(passed)),
    )


def _has_layer(share: RankTensor, number: int) -> bool:
    """Return whether a layer has a copy of a tensor."""
    return share.layers is not None and number in share.layers


def _made_gradients(stage: Stage, number: int, passed: Iterable[RankTensor]) -> int:
    """Return the elements of the gradients that exist in the backward of a layer.

    Backward runs from the head to the embedding: it has made the gradients of the head and of the
    final norm, of all layers after this one, and of what it has passed of this one. That of the
    embedding comes last.
    """
    made = 0
    for share in stage.states.tensors:
        if not share.trained:
            continue
        if share.layers is not None:
            made += share.size * _layers_after(share, number)
        elif share.tensor.kind != "embedding":
            made += share.size
    return made + _elements(share for share in passed if share.trained)


def _layers_after(share: RankTensor, number: int) -> int:
    """Return how many layers after a layer have a copy of a tensor."""
    layers = share.layers or ()  # in ascending order
    return len(layers) - bisect_right(layers, number)


def _made_with(layer: Iterable[RankTensor], own: Part) -> list[RankTensor]:
    """Return the tensors of a part whose gradients are all made at once, but for its last matrix.

    The gradient of the matrix that is split by rows, which is last in forward, was made before.
    """
    here = [share for share in layer if share.trained and share.tensor.module == own.module]
    return [share for share in here if share.tensor.split != "rows"]


def _freed_casts(passed: Iterable[RankTensor]) -> int:
    """Return the elements of autocast's casts that backward has freed: of fp32 matrices."""
    wide = [share for share in passed if share.weight_bytes == FP32_BYTES]
    return _elements(share for share in wide if share.tensor.kind == "linear")


def _passed(layer: Sequence[RankTensor], own: Part, later: Sequence[Part]) -> list[RankTensor]:
    """Return a layer's tensors in `later` parts, and the last matrix of its `own` part if made."""
    modules = {part.module for part in later}
    passed = []
    for share in layer:
        is_last = share.tensor.module == own.module and share.tensor.split == "rows"
        if share.tensor.module in modules or (is_last and own.made != "none"):
            passed.append(share)
    return passed


def _adapters_forward(stage: Stage, parts: Iterable[Part]) -> Lines:
    """Return a layer whose adapters run forward, for the first time or recomputed."""
    kept = tuple(row for part in parts for row in part.saved)
    rows = forward_rows(stage.facts, kept) if stage.is_hf else ()
    if not rows:
        return ()
    gradients = (GRADIENT_ADAPTER,) if stage.recomputed else ()
    named = (("activations: layer in forward", rows), ("gradients inside the layer", gradients))
    lines = (rows_line(name, some, stage.symbols) for name, some in named if some)
    return (*lines, *_casts_lines(stage, 1 if stage.recomputed else stage.layers))


def hooks_inputs(training: TrainingSettings) -> bool:
    """Return whether FSDP1 hooks the inputs of recomputed layers, as their base is frozen."""
    fsdp1 = training.sharding == "fsdp" and training.framework == "hf"
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


def _elements(tensors: Iterable[RankTensor]) -> int:
    return sum(tensor.size for tensor in tensors)


def _of_vocabulary(tensors: Iterable[RankTensor], module: str) -> list[RankTensor]:
    """Return the embedding of token ids, or the head."""
    here = (tensor for tensor in tensors if tensor.tensor.module == module)
    return [tensor for tensor in here if tensor.tensor.split == "vocabulary"]


def _gradients_line(stage: Stage, elements: int) -> Line:
    """Return the gradients when those of `elements` of the rank's trained elements exist.

    All exist all the time if they accumulate, under Megatron-LM, and with ZeRO-3, which allocates
    its shard before the first step (DeepSpeed's stage3.py, grad_partitions_flat_buffer).
    """
    training, states = stage.training, stage.states
    if steps_in_backward(training):
        return GRADIENTS.line({**states.gradients.symbols, "P_trained": 0})
    lasting = sharding_of(training).program == "megatron" or training.sharding == "zero-3"
    if lasting or training.accumulation > 1 or not states.trainable:
        return states.unshared or states.gradients
    symbols = states.gradients.symbols
    made = round(symbols["P_trained"] * elements / states.trainable)
    return GRADIENTS.line({**symbols, "P_trained": made})


def _just_made(stage: Stage, elements: int) -> Line:
    return JUST_MADE.line({**stage.states.gradients.symbols, "P_made": elements})


def _casts_lines(
    stage: Stage, layers: float, *, head: bool = False, freed: int = 0
) -> tuple[Line, ...]:
    """Return autocast's casts of `layers` layers of a stage, except `freed`, and of the head."""
    casts, tensors = stage.states.casts, stage.states.tensors
    if casts is None:
        return ()
    heads = _of_vocabulary(tensors, "embedding" if stage.model.tied else "head")
    in_head = _elements(tensor for tensor in heads if tensor.weight_bytes == FP32_BYTES)
    inside = (casts.symbols["P_cast"] - in_head) * layers / stage.layers
    return (CASTS.line({"P_cast": round(max(inside - freed, 0) + in_head * head)}),)


def _waiting_gradient(stage: Stage) -> tuple[Line, ...]:
    """Return the gradient of a tied head, which waits for the embedding's."""
    if not stage.tied_gradient:
        return ()
    return (TIED_WAITING.line({**stage.symbols, "P_table": stage.table}),)


def _last_gradients(stage: Stage) -> tuple[Line, ...]:
    """Return the gradients when that of the embedding is made, which is last."""
    table, training = stage.table, stage.training
    if training.adapter != "none" or not stage.is_hf or not table:
        return (_gradients_line(stage, stage.states.trainable),)
    made = _gradients_line(stage, stage.states.trainable - table)
    if stage.tied_gradient:
        return made, TIED_SUM.line({**stage.symbols, "P_table": table})
    output = rows_line("gradient of the embedding's output", (GRADIENT_RESIDUAL,), stage.symbols)
    return made, _just_made(stage, table), output
