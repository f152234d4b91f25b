"""The memory of a machine, whether a need fits in it, and settings that make it fit."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tokmill.bill.gpus import DOES_NOT_FIT, FITS, find_gpu
from tokmill.bill.remedies.search import Limit, Search, on_host
from tokmill.bill.states.parallel import ranks_per_node
from tokmill.errors import UsageError
from tokmill.machine.limits import (
    available_memory,
    gpu_names,
    memory_limit,
    shared_memory,
    total_memory,
)
from tokmill.settings.training import TrainingSettings

MIB = 1 << 20

TORCH_BYTES = 277 * MIB
"""Anonymous memory of Python 3.11 with torch 2.13 built for CUDA 13, without a CUDA context."""
FORKED_BYTES = 12 * MIB
"""Anonymous memory of a forked DataLoader worker that it does not share."""
TRACKER_BYTES = 6 * MIB
"""Anonymous memory of the process that tracks semaphores of spawned workers."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Memory of a machine, in bytes; 0: not known.

    `limit_bytes`: the smallest limit of the process's cgroup and its parents. `shm_bytes`: size of
    /dev/shm. `interpreter_bytes`: anonymous memory of a process that has only imported the packages
    of a trainer; `forked_bytes`: that of a worker forked from it, which it does not share. `gpus`:
    names of its GPUs.
    """

    memory_bytes: int = 0
    available_bytes: int = 0
    limit_bytes: int = 0
    shm_bytes: int = 0
    interpreter_bytes: int = TORCH_BYTES
    forked_bytes: int = FORKED_BYTES
    gpus: tuple[str, ...] = ()
    name: str = "this machine"

    @property
    def usable_bytes(self) -> int:
        """Return the memory that a run may use: the smaller of memory and limit."""
        known = [n for n in (self.memory_bytes, self.limit_bytes) if n > 0]
        return min(known, default=0)

    def for_training(self, training: TrainingSettings) -> Machine:
        """Return the machine that trains.

        It is this one, unless `host_ram` is set or this one lacks the GPUs; of another machine only
        `host_ram` is known.
        """
        if not training.host_ram and self._has_gpus(training):
            return self
        return replace(
            self, name="a node", memory_bytes=training.host_ram,
            available_bytes=0, limit_bytes=0, shm_bytes=0,
        )  # fmt: skip

    def _has_gpus(self, training: TrainingSettings) -> bool:
        if not training.gpu and training.gpus == 1:
            return True
        alike = [name for name in self.gpus if _is_gpu(name, training.gpu)]
        return len(alike) >= ranks_per_node(training)


def this_machine() -> Machine:
    """Return the memory of this machine, and its GPUs."""
    return Machine(
        memory_bytes=total_memory(),
        available_bytes=available_memory(),
        limit_bytes=memory_limit(),
        shm_bytes=shared_memory(),
        gpus=tuple(gpu_names()),
    )


def _is_gpu(name: str, wanted: str) -> bool:
    """Return whether a GPU has the name that settings give, in any of its spellings."""
    try:
        return not wanted or find_gpu(name).name == find_gpu(wanted).name
    except UsageError:
        return wanted.lower() in name.lower()


NOT_NOW = "fits once memory is freed"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a need fits in a machine.

    Attributes:
        said: FITS, BARELY, NOT_NOW, DOES_NOT_FIT, or "unknown".
        together: options that together make it fit; () if it fits, or no options are enough.
        usable_bytes: memory of the machine; 0: not known.
        machine: name of the machine.
        shm_bytes: size of /dev/shm if the batches of workers do not fit there, else 0.
    """

    said: str
    together: tuple[str, ...] = ()
    usable_bytes: int = 0
    machine: str = ""
    shm_bytes: int = 0


def host_verdict(
    training: TrainingSettings,
    limit: Limit[TrainingSettings],
    machine: Machine,
    *others: Limit[TrainingSettings],
) -> Verdict:
    """Return whether settings fit on a machine.

    Args:
        training: the settings.
        limit: the host RAM of the machine.
        machine: its name, and the memory that is free now.
        others: limits of other places that what is advised must also meet.
    """
    if not limit.n_bytes:
        return Verdict("unknown")
    needed = limit.need(training)
    outcome = limit.verdict(needed)
    if outcome == DOES_NOT_FIT:
        steps = Search(limit, *others).plan(training, on_host(training))
        together = tuple(option for step in steps for option in step.options)
        shm_bytes = limit.shm_bytes if needed.shm_bytes > limit.shm_bytes else 0
        return Verdict(outcome, together, limit.n_bytes, machine.name, shm_bytes)
    if outcome == FITS and 0 < machine.available_bytes < needed.n_bytes:
        outcome = NOT_NOW
    return Verdict(outcome, (), limit.n_bytes, machine.name)
