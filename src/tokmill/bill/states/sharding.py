"""Sharding: which states data-parallel ranks share under DDP, ZeRO, FSDP and Megatron-LM."""

from __future__ import annotations

from typing import Literal, NamedTuple

from tokmill.bill.states.parallel import state_ranks
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
    "fsdp-grad-op": Sharding("fsdp", weights=True, gradients=True, optimizer=True),
    "fsdp2": Sharding("fsdp", weights=True, gradients=True, optimizer=True),
    "distributed-optimizer": Sharding("megatron", weights=False, gradients=False, optimizer=True),
}
"""fsdp-grad-op (shard_grad_op) differs from fsdp: weights stay gathered after forward."""


def sharding_of(training: TrainingSettings) -> Sharding:
    """Return the states that ranks share; `program` is always megatron under Megatron-LM."""
    found = SHARDINGS[training.sharding]
    return found._replace(program="megatron") if training.framework == "megatron" else found


def shards(training: TrainingSettings, *, shared: bool) -> int:
    """Return the number of ranks that share an amount: 1 if it is not shared."""
    return state_ranks(training) if shared else 1
