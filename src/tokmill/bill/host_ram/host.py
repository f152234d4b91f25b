"""Host RAM of one machine at each moment: initialization, training, evaluation, saving.

Committed memory (anonymous and shared) and page cache have different bills: only the first must
fit, since the kernel can drop page cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any

from tokmill.bill.activations.metrics import host_line
from tokmill.bill.dataset_size import DatasetSize
from tokmill.bill.formula import Bill, Formula, Line
from tokmill.bill.gpus import Need
from tokmill.bill.host_ram.loading import Loading
from tokmill.bill.host_ram.machine import Machine, Verdict, host_verdict
from tokmill.bill.models.model import Model
from tokmill.bill.states.optimizers import FP32_BYTES
from tokmill.bill.states.parallel import sharding_of
from tokmill.bill.states.precision import scheme_of
from tokmill.bill.states.states import checkpoint_bill, rank_states
from tokmill.bill.training_bill import offloaded_lines
from tokmill.settings.training import TrainingSettings

_CREATED = (
    "a model is created in fp32; with a state dict loaded without mmap, measured 2.00 times that",
    "upper bound: a checkpoint's state dict beside it, loaded without mmap",
)
CREATED = {
    "full": Formula("model, created by each process", "4 * P * R", *_CREATED),
    "rank0": Formula("model, created by one process", "4 * P", *_CREATED),
    "mapped": Formula(
        "model, mapped from its file",
        "0 * P",
        "from_pretrained in the file's own type, measured: 2 MiB; in another type 4 B a parameter",
        "upper bound: created by each process in fp32, as from a configuration",
    ),
}
GATHERED = Formula(
    "trained weights, gathered for saving", "q * P_trained",
    "a full state dict on the saving process",
    "not measured; lower bound: saved tensor by tensor; upper bound: optimizer states too",
)  # fmt: skip

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
    """Committed memory of a machine at each moment, in order of time.

    `page_cache` is not committed: the kernel can drop it. `shared` is the part in /dev/shm, which
    has its own limit. `verdict`: whether the machine has the memory.
    """

    moments: tuple[Bill, ...]
    page_cache: Bill
    shared: Bill
    verdict: Verdict

    @property
    def peak(self) -> Bill:
        """The moment that needs most."""
        return _peak_of(self.moments)

    def as_json(self) -> dict[str, Any]:
        """Return the bill as plain values."""
        return {
            "peak": self.peak.as_json(),
            "moments": [bill.as_json() for bill in self.moments],
            "page_cache": self.page_cache.as_json(),
            "shared": self.shared.as_json(),
            "verdict": asdict(self.verdict),
        }


def host_bill(
    model: Model | None, training: TrainingSettings, size: DatasetSize | None, machine: Machine
) -> HostBill:
    """Return the host RAM of one machine that trains a model on a dataset.

    Args:
        model: the model; None: only the loading of the dataset is billed.
        training: settings whose `sequence` is final.
        size: the dataset; None: only the model is billed.
        machine: its memory, and the memory of a bare process there.

    Raises:
        UsageError: settings contradict each other or the model.
    """

    def need(other: TrainingSettings) -> Need:
        loading = Loading.of(other, size, machine)
        peak = _peak_of(tuple(_moments(model, loading)))
        shm_bytes = sum(line.n_bytes for line in loading.shared())
        return Need(peak.n_bytes, peak.high_bytes, shm_bytes)

    loading = Loading.of(training, size, machine)
    return HostBill(
        tuple(_moments(model, loading)),
        Bill("host RAM: page cache", tuple(loading.page_cache()), _CACHE_LEAVES_OUT),
        Bill("shared memory (/dev/shm): batches of workers", tuple(loading.shared())),
        host_verdict(training, machine, need),
    )


def _peak_of(moments: tuple[Bill, ...]) -> Bill:
    return max(moments, key=lambda bill: bill.n_bytes)


def _moments(model: Model | None, loading: Loading) -> Iterator[Bill]:
    """Yield the committed memory of each moment, in order of time."""
    training = loading.training
    states: tuple[Line, ...] = ()  # those in host RAM, which stay to the end
    if model is not None:
        created = _created_lines(model, loading)
        yield _bill("initialization", loading.trainers(), created)
        states = () if training.offload == "none" else rank_states(model, training).host
    if opening := loading.opening():  # workers start with the first batch
        yield _bill("opening the dataset", loading.trainers(), opening, states)
    processes = [*loading.trainers(), *loading.workers()]
    if starting := loading.starting():
        yield _bill("starting the last worker", processes, starting, loading.freed(), states)
    dataset = [*loading.loaded(), *loading.copied(), *loading.freed(), *loading.batches()]
    steady = [*processes, *dataset, *states]
    if model is None:
        yield _bill("training", steady)
        return
    yield _bill("training", steady, offloaded_lines(model, training))
    if training.metric_batches:
        logits = host_line(training, {**loading.symbols, "V": model.outputs})
        yield _bill("evaluation", steady, [logits])
    yield _bill("saving a checkpoint", steady, [_gathered_line(model, training)])


def _bill(moment: str, *lines: Sequence[Line]) -> Bill:
    return Bill(f"host RAM of a machine: {moment}", tuple(chain(*lines)), LEAVES_OUT)


def _created_lines(model: Model, loading: Loading) -> list[Line]:
    """Return the weights of the model while it is created; [] on the meta device."""
    training, initialization = loading.training, loading.training.initialization
    if initialization == "auto":
        # Hugging Face's trainers load 16-bit weights as their file has them.
        half = scheme_of(training).weight < FP32_BYTES
        mapped = half and sharding_of(training).program in ("ddp", "fsdp")
        trained = "mapped" if mapped else "full"
        initialization = trained if training.adapter == "none" else "meta"
    if initialization not in CREATED:
        return []
    formula = CREATED[initialization]
    copies = 2 if training.reference_model and training.adapter == "none" else 1
    values = {**loading.symbols, "P": copies * model.parameters}
    high_bytes = 2 * formula.evaluate(values)
    if initialization == "mapped" and training.initialization == "auto":
        high_bytes = CREATED["full"].evaluate(values)
    return [formula.line(values, high_bytes=high_bytes)]


def _gathered_line(model: Model, training: TrainingSettings) -> Line:
    """Return the content of a checkpoint, in the memory of the process that saves it."""
    saved = checkpoint_bill(model, replace(training, checkpoints=0))
    return GATHERED.line(saved.lines[0].symbols, low_bytes=0, high_bytes=saved.n_bytes)
