"""Parallelism: which settings contradict each other, and the tensors that a rank holds.

A rank is a GPU with its process. Tensor, expert and pipeline parallelism decide what of the model
a rank works on; how data-parallel ranks share the states of that is `states`' matter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tokmill.bill.models.adapters import adapter_tensors
from tokmill.bill.states.precision import frozen_bytes, scheme_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokmill.bill.models.model import Attention, Model, Tensor
    from tokmill.settings.training import TrainingSettings


RANKS_OF_A_NODE = 8


@dataclass(frozen=True, slots=True)
class RankTensor:
    """The part of a tensor on the fullest rank, before data-parallel ranks share it.

    `shape` is that of one copy on this rank. `layers` are those of its stage, None outside layers.
    `weight_bytes` are the bytes of an element. `expert_ranks` share the experts of a layer: 1 for
    all other tensors.
    """

    tensor: Tensor
    shape: tuple[int, ...]
    layers: tuple[int, ...] | None
    trained: bool
    weight_bytes: float
    expert_ranks: int = 1

    @property
    def size(self) -> int:
        """Elements of one copy."""
        return math.prod(self.shape)

    @property
    def count(self) -> int:
        """Elements of all copies on this rank."""
        return self.size * (1 if self.layers is None else len(self.layers))

    def among(self, ranks: int) -> RankTensor:
        """Return what `ranks` ranks share: with others also the experts that this rank has not."""
        if ranks == 1 or self.expert_ranks == 1:
            return self
        return replace(self, shape=(self.shape[0] * self.expert_ranks, *self.shape[1:]))


def state_ranks(training: TrainingSettings) -> int:
    """Return the ranks that hold the same tensors, and may share their states.

    Context-parallel ranks are among them: they see other tokens, as data-parallel ranks do.
    """
    return training.gpus // (training.tensor_parallel * training.pipeline_parallel)


def data_parallel(training: TrainingSettings) -> int:
    """Return N: the ranks that see different sequences."""
    return state_ranks(training) // training.context_parallel


def ranks_per_node(training: TrainingSettings) -> int:
    """Return the ranks of a machine: as said, else all, 8 at most."""
    return min(training.gpus, training.gpus_per_node or RANKS_OF_A_NODE)


def stage_layers(model: Model, training: TrainingSettings, stage: int) -> range | tuple[int, ...]:
    """Return the layers of a pipeline stage; interleaved ones are in `virtual_stages` chunks.

    Layers that do not divide go to the first stages, one each.
    """
    stages, chunks = training.pipeline_parallel, training.virtual_stages
    if chunks > 1:
        size = model.layers // (stages * chunks)
        starts = ((chunk * stages + stage) * size for chunk in range(chunks))
        return tuple(layer for start in starts for layer in range(start, start + size))
    size, longer = divmod(model.layers, stages)
    start = stage * size + min(stage, longer)
    return range(start, start + size + (stage < longer))


def count_among(tensors: Iterable[RankTensor], ranks: int) -> int:
    """Return the elements that `ranks` ranks share."""
    return sum(held.among(ranks).count for held in tensors)


def rank_tensors(model: Model, training: TrainingSettings) -> tuple[RankTensor, ...]:
    """Return what the fullest rank works on: the base's tensors, then the adapters'.

    The fullest is that of the stage with the most elements in matrices; of equal stages the first,
    which holds the embedding and the most micro batches.
    """
    adapters = adapter_tensors(model, training)
    base_is_trained = not adapters
    whole = (
        *(_of_rank(t, model, training, trained=base_is_trained) for t in model.tensors),
        *(_of_rank(t, model, training, trained=True) for t in adapters),
    )
    if training.pipeline_parallel == 1:
        return whole
    stages = range(training.pipeline_parallel)
    held = {stage: _of_stage(whole, model, training, stage) for stage in stages}
    return held[max(stages, key=lambda stage: _matrix_elements(held[stage]))]


def _matrix_elements(tensors: tuple[RankTensor, ...]) -> int:
    return sum(held.count for held in tensors if held.tensor.kind != "vector")


def _of_stage(
    whole: tuple[RankTensor, ...], model: Model, training: TrainingSettings, stage: int
) -> tuple[RankTensor, ...]:
    last = training.pipeline_parallel - 1
    layers = frozenset(stage_layers(model, training, stage))
    found = []
    for held in whole:
        if held.layers is not None:
            here = tuple(layer for layer in held.layers if layer in layers)
            found += [replace(held, layers=here)] if here else []
        elif held.tensor.kind == "embedding":
            # Tied, the last stage makes the logits with a copy of its own.
            copied = model.tied and held.tensor.split == "vocabulary" and stage == last
            found += [held] if stage == 0 or copied else []
        elif stage == last:
            found.append(held)
    return tuple(found)


def _of_rank(
    tensor: Tensor, model: Model, training: TrainingSettings, *, trained: bool
) -> RankTensor:
    experts = training.expert_parallel if tensor.kind == "experts" else 1
    return RankTensor(
        tensor,
        _rank_shape(tensor, model.attention, training.tensor_parallel, experts),
        tensor.layers,
        trained,
        scheme_of(training).weight if trained else frozen_bytes(tensor, model, training),
        experts,
    )


def _rank_shape(tensor: Tensor, attention: Attention, ranks: int, experts: int) -> tuple[int, ...]:
    shape = list(tensor.shape)
    if experts > 1:
        shape[0] //= experts
    if ranks > 1 and tensor.split != "none":
        axis = _split_axis(tensor)
        shape[axis] = _rank_features(tensor, shape[axis], attention, ranks)
    return tuple(shape)


def _split_axis(tensor: Tensor) -> int:
    """Return the axis of the features, or of the ids, that are split."""
    if len(tensor.shape) == 1 or tensor.split == "vocabulary":
        return 0
    out_first = tensor.shape[-2:] == (tensor.n_out, tensor.n_in)
    return -2 if out_first == (tensor.split == "columns") else -1


def _rank_features(tensor: Tensor, width: int, attention: Attention, ranks: int) -> int:
    """Return a rank's share of features or ids, rounded up: the rest is padding.

    With fewer key-value heads than ranks each rank holds a whole one, so that several hold the same
    (as Megatron-LM and vLLM do).
    """
    if tensor.module == "attention" and tensor.split == "columns" and attention.kv_heads < ranks:
        keys = attention.kv_heads * attention.head_dim
        queries = attention.heads * attention.head_dim
        if width == queries + 2 * keys:
            return queries // ranks + 2 * attention.head_dim
        if ".k_proj" in tensor.name or ".v_proj" in tensor.name:
            return width // attention.kv_heads
    return -(-width // ranks)
