"""Host RAM of one machine, moment by moment: initialization, opening, training, evaluation, saving.

What is committed (anonymous and shared memory) and what the kernel may drop (page cache) stand in
different bills: only the first must fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tokmill.bill.activations.metrics import host_line
from tokmill.bill.formula import Bill, Formula
from tokmill.bill.host_ram.loading import (
    batch_lines,
    cache_lines,
    copied_lines,
    freed_lines,
    held_lines,
    loading_symbols,
    opening_lines,
    process_lines,
    shared_lines,
    starting_lines,
)
from tokmill.bill.host_ram.machine import Verdict, host_verdict
from tokmill.bill.states.checkpoints import checkpoint_bill
from tokmill.bill.states.states import rank_states
from tokmill.bill.training_bill import offloaded_lines
from tokmill.bill.verdict import Need

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tokmill.bill.dataset_size import DatasetSize
    from tokmill.bill.formula import Line
    from tokmill.bill.host_ram.machine import Machine
    from tokmill.bill.models.model import Model
    from tokmill.settings.training import TrainingSettings

    Symbols = Mapping[str, float]

_CHECKPOINT = (
    "a model is made in fp32; a state dict loaded without mmap and copied measured 2.00 times that"
)
MADE_BY_ALL = Formula(
    "model, created by each process", "4 * P * R", _CHECKPOINT,
    "upper bound: a checkpoint's state dict beside it, loaded without mmap",
)  # fmt: skip
MADE_BY_ONE = Formula(
    "model, created by one process", "4 * P", _CHECKPOINT,
    "upper bound: a checkpoint's state dict beside it, loaded without mmap",
)  # fmt: skip
GATHERED = Formula(
    "trained weights, gathered for saving", "q * P_trained",
    "a full state dict on the saving process",
    "not measured; lower bound: saved tensor by tensor; upper bound: optimizer states besides",
)  # fmt: skip
INITIAL = {"full": MADE_BY_ALL, "rank0": MADE_BY_ONE}

LEAVES_OUT = (
    "the system and other programs",
    "CUDA's libraries in each process",
    "the tokenizer",
    "freed memory that malloc keeps, up to 32 MiB per process, apart from pickling",
)
_CACHE_LEAVES_OUT = (
    "code of libraries: 75 MiB with torch for the CPU",
    "a checkpoint loaded with mmap: as large as its file",
)


@dataclass(frozen=True, slots=True)
class HostBill:
    """Committed memory of a machine at each moment, in order; and what stands apart from it.

    `page_cache` is what the kernel may drop, `shared` the part that lies in /dev/shm, which has a
    size of its own. `verdict` is against the machine.
    """

    moments: tuple[Bill, ...]
    page_cache: Bill
    shared: Bill
    verdict: Verdict

    @property
    def peak(self) -> Bill:
        """The moment that takes most."""
        return peak_of(self.moments)

    def as_json(self) -> dict[str, Any]:
        """Return the bill as plain values."""
        return {
            "peak": self.peak.as_json(),
            "moments": [bill.as_json() for bill in self.moments],
            "page_cache": self.page_cache.as_json(),
            "shared": self.shared.as_json(),
            "verdict": self.verdict.as_json(),
        }


def host_bill(
    model: Model | None, training: TrainingSettings, size: DatasetSize | None, machine: Machine
) -> HostBill:
    """Return what one machine needs to have for training a model on a dataset; both may be None.

    Args:
        model: its initialization, kept logits, offload and saving.
        training: settings whose `sequence` is settled.
        size: the dataset, as each process loads it.
        machine: what there is, and what a bare process takes there.

    Raises:
        UsageError: settings contradict each other or the model.
    """
    symbols = loading_symbols(training, size, machine)
    moments = tuple(_moments(model, training, symbols))
    shared = Bill(
        "shared memory (/dev/shm): batches of workers", tuple(shared_lines(training, symbols))
    )

    def need(other: TrainingSettings) -> Need:
        other_symbols = loading_symbols(other, size, machine)
        peak = peak_of(tuple(_moments(model, other, other_symbols)))
        shm = sum(line.n_bytes for line in shared_lines(other, other_symbols))
        return Need(peak.n_bytes, peak.high_bytes, shm)

    return HostBill(
        moments,
        Bill("host RAM: page cache", tuple(cache_lines(symbols)), _CACHE_LEAVES_OUT),
        shared,
        host_verdict(training, machine, need),
    )


def peak_of(moments: tuple[Bill, ...]) -> Bill:
    """Return the bill that takes most."""
    return max(moments, key=lambda bill: bill.n_bytes)


def _moments(model: Model | None, training: TrainingSettings, symbols: Symbols) -> Iterator[Bill]:
    processes = process_lines(training, symbols)
    trainers = processes[:1]  # workers start with the first batch
    if model is not None:
        yield _bill("initialization", [*trainers, *_initial_lines(model, training, symbols)])
    states, activations = _offloaded(model, training)
    opening = opening_lines(training, symbols)
    if opening:
        yield _bill("opening the dataset", [*trainers, *opening, *states])
    starting, freed = starting_lines(training, symbols), freed_lines(training, symbols)
    if starting:
        yield _bill("starting the last worker", [*processes, *starting, *freed, *states])
    steady = [
        *processes,
        *held_lines(training, symbols),
        *copied_lines(training, symbols),
        *freed,
        *batch_lines(training, symbols),
        *states,
    ]
    yield _bill("training", [*steady, *activations])
    if model is not None:
        if training.metric_batches:
            logits = host_line(training, {**symbols, "V": model.outputs})
            yield _bill("evaluation", [*steady, logits])
        yield _bill("saving a checkpoint", [*steady, _gathered_line(model, training)])


def _bill(moment: str, lines: list[Line]) -> Bill:
    return Bill(f"host RAM of a machine: {moment}", tuple(lines), LEAVES_OUT)


def _offloaded(
    model: Model | None, training: TrainingSettings
) -> tuple[tuple[Line, ...], tuple[Line, ...]]:
    """Return what the GPUs leave in host RAM: states to the end, activations during a step."""
    if model is None:
        return (), ()
    states = () if training.offload == "none" else rank_states(model, training).host
    return states, offloaded_lines(model, training)


def _initial_lines(model: Model, training: TrainingSettings, symbols: Symbols) -> list[Line]:
    if training.initialization not in INITIAL:
        return []
    formula = INITIAL[training.initialization]
    copies = 2 if training.reference_model and training.adapter == "none" else 1
    values = {**symbols, "P": copies * model.parameters}
    return [formula.line(values, high_bytes=2 * formula.evaluate(values))]


def _gathered_line(model: Model, training: TrainingSettings) -> Line:
    """Return what one checkpoint holds, in the memory of the process that saves it."""
    saved = checkpoint_bill(model, replace(training, checkpoints=0))
    return GATHERED.line(saved.lines[0].symbols, low_bytes=0, high_bytes=saved.n_bytes)
