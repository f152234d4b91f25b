"""The memory of a machine, whether a need fits in it, and settings that make it fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from tokmill.bill.gpus import BARELY, DOES_NOT_FIT, FITS, Need, find_gpu
from tokmill.bill.remedies.savings import Case, on_host
from tokmill.bill.remedies.search import Offer, Search
from tokmill.bill.states.parallel import ranks_per_node
from tokmill.errors import UsageError
from tokmill.settings.training import TrainingSettings
from tokmill.words.units import memory

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


def _is_gpu(name: str, wanted: str) -> bool:
    """Return whether a GPU has the name that settings give, in any of its spellings."""
    try:
        return not wanted or find_gpu(name).name == find_gpu(wanted).name
    except UsageError:
        return wanted.lower() in name.lower()


NOT_NOW = "fits once memory is freed"
_NO_ADVICE = "no setting of loading or initialization makes it fit"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a need fits in a machine.

    Attributes:
        said: FITS, BARELY, NOT_NOW, DOES_NOT_FIT, or "unknown".
        text: the same as a sentence, with the amounts.
        remedies: settings that need less, each applied alone.
        together: options that together make it fit; () if it fits, or no options are enough.
        usable_bytes: memory of the machine; 0: not known.
        machine: name of the machine.
    """

    said: str
    text: str
    remedies: tuple[Offer, ...] = ()
    together: tuple[str, ...] = ()
    usable_bytes: int = 0
    machine: str = ""

    def __str__(self) -> str:
        return self.text

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as plain values."""
        return asdict(self)


def host_verdict(
    training: TrainingSettings, machine: Machine, need: Callable[[TrainingSettings], Need]
) -> Verdict:
    """Return whether settings fit on a machine; `need` returns the need of any settings."""
    needed, usable = need(training), machine.usable_bytes
    if not usable:
        text = f"needs {_needed(needed, training)}; set --host-ram to see whether it fits"
        return Verdict("unknown", text)
    problems = "; ".join(_problems(needed, training, machine))
    if problems:

        def need_of(other: Case[TrainingSettings]) -> Need:
            return need(other.settings)

        search = Search(need_of, usable, machine.shm_bytes)
        case = Case(None, training)
        savings = tuple(on_host(training))
        together = tuple(option for each in search.plan(case, savings) for option in each.options)
        advice = f"fits with {' '.join(together)}" if together else _NO_ADVICE
        text = f"{DOES_NOT_FIT}: {problems}; {advice}"
        offers = search.offers(case, savings)
        return Verdict(DOES_NOT_FIT, text, offers, together, usable, machine.name)
    said, more = FITS, ""
    if needed.high_bytes > usable:
        said, more = BARELY, f", upper bound {memory(needed.high_bytes)}"
    elif 0 < machine.available_bytes < needed.n_bytes:
        said, more = NOT_NOW, f", {memory(machine.available_bytes)} of it free now"
    text = f"{said}: {_compared(needed, training, machine)}{more}"
    return Verdict(said, text, usable_bytes=usable, machine=machine.name)


def _problems(needed: Need, training: TrainingSettings, machine: Machine) -> Iterator[str]:
    if needed.n_bytes > machine.usable_bytes:
        yield _compared(needed, training, machine)
    if 0 < machine.shm_bytes < needed.shm_bytes:
        yield (
            f"{memory(needed.shm_bytes)} of batches do not fit in /dev/shm, "
            f"which has {memory(machine.shm_bytes)}"
        )


def _compared(needed: Need, training: TrainingSettings, machine: Machine) -> str:
    limit = machine.limit_bytes
    is_limit = limit and (not machine.memory_bytes or limit < machine.memory_bytes)
    source = " (its cgroup's limit)" if is_limit else ""
    room = f"{machine.name} has {memory(machine.usable_bytes)}{source}"
    return f"needs {_needed(needed, training)}, {room}"


def _needed(needed: Need, training: TrainingSettings) -> str:
    """Return the need of a node and, if there are several processes, of each."""
    ranks = ranks_per_node(training)
    each = "" if ranks == 1 else f" per node ({memory(needed.n_bytes // ranks)} per process)"
    return f"{memory(needed.n_bytes)}{each}"
