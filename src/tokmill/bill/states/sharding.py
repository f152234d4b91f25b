"""Sharding: which states data-parallel ranks share (DDP, ZeRO stages, FSDP, Megatron's)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tokmill.bill.states.parallel import state_ranks

if TYPE_CHECKING:
    from tokmill.settings.training import TrainingSettings


class Sharding(NamedTuple):
    """Whether ranks share weights, gradients and optimizer states, or hold all of them."""

    weights: bool
    gradients: bool
    optimizer: bool


SHARDINGS = {
    "ddp": Sharding(weights=False, gradients=False, optimizer=False),
    "zero-1": Sharding(weights=False, gradients=False, optimizer=True),
    "zero-2": Sharding(weights=False, gradients=True, optimizer=True),
    "zero-3": Sharding(weights=True, gradients=True, optimizer=True),
    "fsdp": Sharding(weights=True, gradients=True, optimizer=True),
    "distributed-optimizer": Sharding(weights=False, gradients=False, optimizer=True),
}


def sharding_of(training: TrainingSettings) -> Sharding:
    """Return what the ranks share."""
    return SHARDINGS[training.sharding]


def shards(training: TrainingSettings, *, shared: bool) -> int:
    """Return the ranks that share an amount: 1 where it is not shared."""
    return state_ranks(training) if shared else 1
