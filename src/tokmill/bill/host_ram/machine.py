"""The memory of a machine, whether a need fits into it, and which settings would make it fit."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from tokmill.bill.remedies.case import Case
from tokmill.bill.remedies.search import Search
from tokmill.bill.remedies.table import ON_HOST
from tokmill.bill.verdict import BARELY, DOES_NOT_FIT, FITS, Room
from tokmill.words.units import memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tokmill.bill.remedies.search import Offer
    from tokmill.bill.verdict import Need
    from tokmill.settings.training import TrainingSettings


MIB = 1 << 20

BARE_BYTES = 15 * MIB
"""Anonymous memory of Python with NumPy (Linux, x86-64, Python 3.11, NumPy 2.4, 2026-11)."""
TORCH_BYTES = 277 * MIB
"""The same with torch 2.13 built for CUDA 13, which trainers on GPUs run on, before any context."""

FORKED_BYTES = 12 * MIB
"""Anonymous memory that a forked worker of a DataLoader makes its own (the same machine)."""
BARE_FORKED_BYTES = 7 * MIB // 2
"""The same of a worker of NumPy and multiprocessing alone."""
TRACKER_BYTES = 6 * MIB
"""Anonymous memory of the process that watches the semaphores of spawned workers."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Memory of a machine, in bytes; 0: not known, nothing is then held against it.

    `limit_bytes` is the smallest limit of the process's cgroup and all above it; `shm_bytes` the
    size of /dev/shm. `interpreter_bytes` is the anonymous memory of a process that has imported
    what a trainer imports and done nothing, `forked_bytes` what a worker forked from it makes its
    own.
    """

    memory_bytes: int = 0
    available_bytes: int = 0
    limit_bytes: int = 0
    shm_bytes: int = 0
    interpreter_bytes: int = TORCH_BYTES
    forked_bytes: int = FORKED_BYTES

    @property
    def usable_bytes(self) -> int:
        """Return the memory that a run may use: the smaller of memory and limit."""
        known = [n for n in (self.memory_bytes, self.limit_bytes) if n > 0]
        return min(known, default=0)

    def with_memory(self, memory_bytes: int) -> Machine:
        """Return another machine, of which only the memory is known."""
        return replace(
            self, memory_bytes=memory_bytes, available_bytes=0, limit_bytes=0, shm_bytes=0
        )


NOT_NOW = "fits once memory is freed"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a need fits, and a sentence.

    `said` is FITS, BARELY, NOT_NOW, DOES_NOT_FIT, or "unknown". `remedies` need less, each alone;
    `together` are options that make it fit, () where nothing has to be done or nothing is enough.
    `usable_bytes` is the memory that there is, 0 if that is not known.
    """

    said: str
    text: str
    remedies: tuple[Offer, ...] = ()
    together: tuple[str, ...] = ()
    usable_bytes: int = 0

    def __str__(self) -> str:
        return self.text

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as plain values."""
        return asdict(self)


def host_verdict(
    training: TrainingSettings, machine: Machine, need: Callable[[TrainingSettings], Need]
) -> Verdict:
    """Judge what settings need on a machine; `need` says it of any settings."""
    needed = need(training)
    if not machine.usable_bytes:
        return Verdict("unknown", f"needs {memory(needed.n_bytes)}; no machine to compare it with")
    problems = list(_problems(needed, machine))
    if not problems:
        return _fitting(needed, machine)
    room = Room(machine.usable_bytes, machine.shm_bytes)
    search, case = Search(lambda other: need(other.training), room), Case(None, training)
    together = tuple(option for each in search.plan(case, ON_HOST) for option in each.options)
    advice = "no setting of loading or initialization makes it fit"
    if together:
        advice = f"fits with {' '.join(together)}"
    text = f"{DOES_NOT_FIT}: {'; '.join(problems)}; {advice}"
    offers = search.offers(case, ON_HOST)
    return Verdict(DOES_NOT_FIT, text, offers, together, machine.usable_bytes)


def _fitting(needed: Need, machine: Machine) -> Verdict:
    usable = machine.usable_bytes
    room = f"{memory(needed.n_bytes)} of {memory(usable)}{_limited(machine)}"
    if needed.high_bytes > machine.usable_bytes:
        text = f"{BARELY}: {room}, upper bound {memory(needed.high_bytes)}"
        return Verdict(BARELY, text, usable_bytes=usable)
    if 0 < machine.available_bytes < needed.n_bytes:
        available = memory(machine.available_bytes)
        text = f"fits: {room}, but only {available} are free now"
        return Verdict(NOT_NOW, text, usable_bytes=usable)
    return Verdict(FITS, f"{FITS}: {room}", usable_bytes=usable)


def _problems(needed: Need, machine: Machine) -> Iterator[str]:
    if needed.n_bytes > machine.usable_bytes:
        usable = f"{memory(machine.usable_bytes)}{_limited(machine)}"
        yield f"needs {memory(needed.n_bytes)}, this machine has {usable}"
    if 0 < machine.shm_bytes < needed.shm_bytes:
        yield (
            f"{memory(needed.shm_bytes)} of batches do not fit in /dev/shm, "
            f"which has {memory(machine.shm_bytes)}"
        )


def _limited(machine: Machine) -> str:
    limit = machine.limit_bytes
    is_limit = limit and (not machine.memory_bytes or limit < machine.memory_bytes)
    return " (its cgroup's limit)" if is_limit else ""
