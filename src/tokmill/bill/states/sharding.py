"""Sharding: which states data-parallel ranks share (DDP, ZeRO stages, FSDP, Megatron's)."""

from __future__ import annotations

from typing import Literal, NamedTuple

from tokmill.bill.states.parallel import state_ranks
from tokmill.settings.training import TrainingSettings


class Sharding(NamedTuple):
    """Who shards, and whether ranks share weights, gradients and optimizer states.

    `program` decides which buffers the ranks communicate with, and how the optimizer steps.
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
    "distributed-optimizer": Sharding("megatron", weights=False, gradients=False, optimizer=True),
}
"""fsdp-grad-op (shard_grad_op) differs from fsdp in what stays gathered after forward."""


def sharding_of(training: TrainingSettings) -> Sharding:
    """Return what the ranks share; all of Megatron-LM steps as its distributed optimizer does."""
    found = SHARDINGS[training.sharding]
    return found._replace(program="megatron") if training.framework == "megatron" else found


def shards(training: TrainingSettings, *, shared: bool) -> int:
    """Return the ranks that share an amount: 1 where it is not shared."""
    return state_ranks(training) if shared else 1
