"""The memory of a machine, whether a need fits into it, and which settings would make it fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from tokmill.words.units import memory

if TYPE_CHECKING:
    from tokmill.settings.training import TrainingSettings

    Change = Callable[[TrainingSettings], TrainingSettings]


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


BARELY = "fits by the estimate, not by the upper bound"
NOT_NOW = "fits once memory is freed"


@dataclass(frozen=True, slots=True)
class Need:
    """Committed bytes of a machine, expected and at most, and those of them in /dev/shm."""

    n_bytes: int
    high_bytes: int
    shm_bytes: int


@dataclass(frozen=True, slots=True)
class Remedy:
    """A setting, as the option that makes it, and what it saves when it alone is changed."""

    option: str
    saves_bytes: int
    is_enough: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a need fits, and a sentence.

    `said` is "fits", BARELY, NOT_NOW, "does not fit", or "unknown".

    `remedies` are the settings that help, in order of what they cost; `together`: options that make
    it fit, () where nothing has to be done or nothing is enough.
    """

    said: str
    text: str
    remedies: tuple[Remedy, ...] = ()
    together: tuple[str, ...] = ()

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
    remedies = tuple(_remedies(training, machine, needed, need))
    together = _enough(training, machine, need, remedies)
    advice = "no setting of loading or initialization makes it fit"
    if together:
        advice = f"fits with {' '.join(together)}"
    return Verdict(
        "does not fit", f"does not fit: {'; '.join(problems)}; {advice}", remedies, together
    )


def _fitting(needed: Need, machine: Machine) -> Verdict:
    room = f"{memory(needed.n_bytes)} of {memory(machine.usable_bytes)}{_limited(machine)}"
    if needed.high_bytes > machine.usable_bytes:
        return Verdict(BARELY, f"{BARELY}: {room}, upper bound {memory(needed.high_bytes)}")
    if 0 < machine.available_bytes < needed.n_bytes:
        available = memory(machine.available_bytes)
        return Verdict(NOT_NOW, f"fits: {room}, but only {available} are free now")
    return Verdict("fits", f"fits: {room}")


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


def _changes(training: TrainingSettings) -> Iterator[tuple[str, Change]]:
    """Yield what may help, cheapest first."""
    spawned = training.loader_workers > 0 and training.start_method == "spawn"
    loading = "lazy" if spawned else "memmap"
    if training.loading not in ("lazy", loading):
        yield f"--loading {loading}", lambda one: replace(one, loading=loading)
    if training.metric_batches:
        yield "--metric-batches 0", lambda one: replace(one, metric_batches=0)
    if training.initialization != "meta":
        yield "--initialization meta", lambda one: replace(one, initialization="meta")
    if training.pin_memory:
        yield "--no-pin-memory", lambda one: replace(one, pin_memory=False)
    if spawned:
        yield "--start-method fork", lambda one: replace(one, start_method="fork")
    if training.loader_workers and training.prefetch > 1:
        yield "--prefetch 1", lambda one: replace(one, prefetch=1)
    if training.loader_workers > 1:
        yield "--loader-workers 1", lambda one: replace(one, loader_workers=1)
    if training.loader_workers:
        yield "--loader-workers 0", lambda one: replace(one, loader_workers=0)


def _remedies(
    training: TrainingSettings,
    machine: Machine,
    needed: Need,
    need: Callable[[TrainingSettings], Need],
) -> Iterator[Remedy]:
    for option, change in _changes(training):
        other = need(change(training))
        saved = needed.n_bytes - other.n_bytes
        if saved > 0 or other.shm_bytes < needed.shm_bytes:
            yield Remedy(option, saved, not any(_problems(other, machine)))


def _enough(
    training: TrainingSettings,
    machine: Machine,
    need: Callable[[TrainingSettings], Need],
    remedies: tuple[Remedy, ...],
) -> tuple[str, ...]:
    """Return the first option that is enough alone, or the first few that are together."""
    for remedy in remedies:
        if remedy.is_enough:
            return (remedy.option,)
    changes = dict(_changes(training))
    chosen: dict[str, str] = {}
    for option, change in changes.items():
        training = change(training)
        chosen[option.partition(" ")[0]] = option
        if not any(_problems(need(training), machine)):
            return tuple(chosen.values())
    return ()
