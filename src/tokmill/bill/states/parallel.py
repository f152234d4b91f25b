"""Parallelism: the tensors of a rank under tensor, expert and pipeline parallelism, and sharding.

A rank is a GPU with its process. Data-parallel ranks may share weights, gradients and optimizer
states: with DDP, ZeRO, FSDP or Megatron-LM's distributed optimizer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from tokmill.bill.models.adapters import adapter_tensors
from tokmill.bill.models.model import Attention, Model, Tensor
from tokmill.bill.states.precision import frozen_bytes, scheme_of
from tokmill.settings.training import TrainingSettings


class Sharding(NamedTuple):
    """A kind of sharding: whether ranks share weights, gradients and optimizer states.

    `program` decides the buffers for communication, and how the optimizer steps.
    """

    program: Literal["ddp", "deepspeed", "fsdp", "megatron"]
    weights: bool
    gradients: bool
    optimizer: bool


SHARDINGS = {
    "ddp": Sharding("ddp", weights=False, gradients=False, optimizer=False),
    "zero-1": Sharding("deepspeed", weights=False, gradients=False, optimizer=True),
    "zero-2": Sharding("deepspeed", weights=False, gradients=True, optimizer=True),
    "zero-3": Sharding("deepspeed", weights=True, gradients=True, optimizer=True),
    "fsdp": Sharding("fsdp", weights=True, gradients=True, optimizer=True),
    "fsdp2": Sharding("fsdp", weights=True, gradients=True, optimizer=True),
    "distributed-optimizer": Sharding("megatron", weights=False, gradients=False, optimizer=True),
}


def sharding_of(training: TrainingSettings) -> Sharding:
    """Return the states that ranks share; `program` is always megatron under Megatron-LM."""
    sharding = SHARDINGS[training.sharding]
    return sharding._replace(program="megatron") if training.framework == "megatron" else sharding


def shards(training: TrainingSettings, *, shared: bool) -> int:
    """Return the number of ranks that share an amount: 1 if it is not shared."""
    return state_ranks(training) if shared else 1


RANKS_OF_A_NODE = 8


@dataclass(frozen=True, slots=True)
class RankTensor:
    """A rank's part of a tensor, before data-parallel ranks share it.

    Attributes:
        tensor: the complete tensor.
        shape: shape of the part, in one layer.
        layers: the layers of the rank's stage that have the tensor; None outside layers.
        trained: whether the tensor is trained.
        weight_bytes: bytes per element of the weight.
        expert_ranks: ranks that hold all experts of a layer together, divided by the
            tensor-parallel ranks; 1 for other tensors.
    """

    tensor: Tensor
    shape: tuple[int, ...]
    layers: tuple[int, ...] | None
    trained: bool
    weight_bytes: float
    expert_ranks: float = 1

    @property
    def size(self) -> int:
        """Elements in one layer."""
        return math.prod(self.shape)

    @property
    def count(self) -> int:
        """Elements in all layers of this rank."""
        return self.size * (1 if self.layers is None else len(self.layers))

    def in_layers(self, layers: tuple[int, ...]) -> RankTensor:
        """Return the tensor in some layers; plans ask this so often that `replace` is too slow."""
        return RankTensor(
            self.tensor, self.shape, layers, self.trained, self.weight_bytes, self.expert_ranks
        )

    def among(self, ranks: int) -> RankTensor:
        """Return the part that `ranks` ranks share, with the experts of all of them."""
        if ranks == 1 or self.expert_ranks == 1:
            return self
        experts = math.ceil(self.shape[0] * self.expert_ranks)
        return replace(self, shape=(experts, *self.shape[1:]))


def state_ranks(training: TrainingSettings) -> int:
    """Return the number of ranks with the same tensors, which may share their states.

    Context-parallel ranks count: they have the same weights and other tokens.
    """
    return training.gpus // (training.tensor_parallel * training.pipeline_parallel)


def expert_tensor_parallel(training: TrainingSettings) -> int:
    """Return the number of ranks that share each expert; by default the tensor-parallel ranks."""
    return training.expert_tensor_parallel or training.tensor_parallel


def data_parallel(training: TrainingSettings) -> int:
    """Return N: the number of ranks with different sequences."""
    return state_ranks(training) // training.context_parallel


def ranks_per_node(training: TrainingSettings) -> int:
    """Return the number of ranks of a node: the setting, else all ranks, at most 8."""
    return min(training.gpus, training.gpus_per_node or RANKS_OF_A_NODE)


def stage_layers(model: Model, training: TrainingSettings, stage: int) -> range | tuple[int, ...]:
    """Return the layers of a pipeline stage; an interleaved stage has `virtual_stages` chunks.

    If the layers do not divide evenly, the first stages have one layer more.
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
    """Return the number of elements that `ranks` ranks share."""
    return sum(share.among(ranks).count for share in tensors)


def rank_tensors(
    model: Model, training: TrainingSettings, stage: int | None = None
) -> tuple[RankTensor, ...]:
    """Return the tensors of a rank of a stage; by default of the stage with most parameters."""
    number = fullest_stage(model, training) if stage is None else stage
    return _of_stage(_all_stages(model, training), model, training, number)


def fullest_stage(model: Model, training: TrainingSettings) -> int:
    """Return the stage with the most elements in matrices; of equal ones the first.

    The first stage has the embedding and the most micro batches in flight.
    """
    if training.pipeline_parallel == 1:
        return 0
    tensors = _all_stages(model, training)
    matrices = tuple(share for share in tensors if share.tensor.kind != "vector")
    return max(
        range(training.pipeline_parallel),
        key=lambda stage: count_among(_of_stage(matrices, model, training, stage), 1),
    )


def _all_stages(model: Model, training: TrainingSettings) -> tuple[RankTensor, ...]:
    """Return the tensors of the base model, then those of the adapters."""
    adapters = adapter_tensors(model, training)
    base_is_trained = not adapters
    return (
        *(_of_rank(t, model, training, trained=base_is_trained) for t in model.tensors),
        *(_of_rank(t, model, training, trained=True) for t in adapters),
    )


def _of_stage(
    tensors: tuple[RankTensor, ...], model: Model, training: TrainingSettings, stage: int
) -> tuple[RankTensor, ...]:
    """Return the tensors of a stage: the first has the embedding, the last what follows layers."""
    if training.pipeline_parallel == 1:
        return tensors
    last = training.pipeline_parallel - 1
    layers = frozenset(stage_layers(model, training, stage))
    own = []
    for share in tensors:
        if share.layers is not None:
            here = tuple(layer for layer in share.layers if layer in layers)
            own += [share.in_layers(here)] if here else []
        elif share.tensor.kind == "embedding":
            # The last stage has a second copy of a tied embedding, for the logits.
            copied = model.tied and share.tensor.split == "vocabulary" and stage == last
            own += [share] if stage == 0 or copied else []
        elif stage == last:
            own.append(share)
    return tuple(own)


def _of_rank(
    tensor: Tensor, model: Model, training: TrainingSettings, *, trained: bool
) -> RankTensor:
    """Return a rank's part of a tensor; adapters on stacked experts are shared as the experts."""
    experts, ranks, expert_ranks = 1, training.tensor_parallel, 1.0
    if tensor.module == "experts":
        experts, ranks = training.expert_parallel, expert_tensor_parallel(training)
        expert_ranks = experts * ranks / training.tensor_parallel
    return RankTensor(
        tensor,
        _rank_shape(tensor, model.attention, ranks, experts),
        tensor.layers,
        trained,
        scheme_of(training).weight if trained else frozen_bytes(tensor, model, training),
        expert_ranks,
    )


def _rank_shape(tensor: Tensor, attention: Attention, ranks: int, experts: int) -> tuple[int, ...]:
    """Return the shape of a rank's part of a tensor, which `ranks` and `experts` ranks share."""
    shape = list(tensor.shape)
    if experts > 1:
        # An adapter's second factor has the ranks of all experts behind its outputs.
        shape[tensor.name.endswith("lora_B.weight")] //= experts
    if ranks > 1 and tensor.split != "none":
        axis = _split_axis(tensor)
        shape[axis] = _rank_features(tensor, shape[axis], attention, ranks)
    return tuple(shape)


def _split_axis(tensor: Tensor) -> int:
    """Return the axis that is split: features, or ids of the vocabulary."""
    if len(tensor.shape) == 1 or tensor.split == "vocabulary":
        return 0
    out_first = tensor.shape[-2:] == (tensor.n_out, tensor.n_in)
    return -2 if out_first == (tensor.split == "columns") else -1


def _rank_features(tensor: Tensor, width: int, attention: Attention, ranks: int) -> int:
    """Return a rank's number of features or ids, rounded up: the rest is padding.

    With fewer key-value heads than ranks each rank holds one complete head, so several ranks hold
    the same one (as Megatron-LM and vLLM do).
    """
    if tensor.module == "attention" and tensor.split == "columns" and attention.kv_heads < ranks:
        keys = attention.kv_heads * attention.head_dim
        queries = attention.heads * attention.head_dim
        if width == queries + 2 * keys:
            return queries // ranks + 2 * attention.head_dim
        if ".k_proj" in tensor.name or ".v_proj" in tensor.name:
            return width // attention.kv_heads
    return -(-width // ranks)
