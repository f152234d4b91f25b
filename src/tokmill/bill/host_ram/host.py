"""Host RAM of one machine at each moment: initialization, training, evaluation, saving.

Committed memory (anonymous and shared) and page cache have different bills: only the first must
fit, since the kernel can drop page cache.

The amounts of a dataset while a trainer loads and reads it were compared with real loaders in child
processes (`bench.host_loading`); the measurements are in tests/bill/host_ram/measured.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import chain
from typing import Any

from tokmill.bill.activations.loss import metrics_host_line
from tokmill.bill.bill_settings import complete_training
from tokmill.bill.formula import Bill, Formula, Line
from tokmill.bill.gpus import Need
from tokmill.bill.host_ram.machine import TRACKER_BYTES, Machine, Verdict, host_verdict
from tokmill.bill.models.model import Model
from tokmill.bill.on_disk import DatasetSize
from tokmill.bill.remedies.search import Limit
from tokmill.bill.states.optimizers import FP32_BYTES
from tokmill.bill.states.parallel import ranks_per_node, sharding_of
from tokmill.bill.states.precision import scheme_of
from tokmill.bill.states.states import checkpoint_bill, rank_states
from tokmill.bill.training_bill import offloaded_lines
from tokmill.settings.training import LAZY_LOADING, TrainingSettings

MEASURED = "measured over the process tree, Linux x86-64, Python 3.11, torch 2.13, 2026-11"
HEAP_BLOCK_BYTES = 32 << 20
"""Larger blocks return to the system when they are freed (glibc's largest threshold)."""
CLOSE = "5% + 32 MiB for the whole bill"

PROCESSES = Formula(
    "processes and their imported packages", "interpreter * R", MEASURED,
    "for torch built for CUDA 13 (277 MiB; for the CPU alone 144); without a CUDA context and "
    "other packages",
)  # fmt: skip
IMPORTED = Formula(
    "packages that make a model", "110 * 2 ** 20 * R",
    f"{MEASURED}: transformers and peft, beside torch", "more where a trainer imports others",
)  # fmt: skip
FORKED = Formula("forked workers", "forked * w * R", MEASURED, CLOSE)
SPAWNED = Formula("spawned workers", "(interpreter * w + tracker) * R", MEASURED, CLOSE)

READ = Formula("dataset as in the files", "(item + beside) * T * R", MEASURED, CLOSE)
CAST = Formula(
    "dataset, ids and labels as int64", "(8 + 8 * masked + 4 * weighted) * T * R", MEASURED, CLOSE
)
LISTED = Formula(
    "dataset in lists", "(8 + 32 * large + 8 * masked + 40 * weighted) * T * R",
    f"{MEASURED}: a pointer, and an object unless it is an integer below 257, which exists once",
    f"{CLOSE}; lower bound: all ids are below 257",
)  # fmt: skip
OWN = Formula(
    "dataset, read by each worker", "(item + beside) * T * max(w, 1) * R", MEASURED, CLOSE
)

JOINING = Formula(
    "shards beside their concatenation",
    "max(item - beside, masked, 4 * weighted) * T * R", MEASURED, CLOSE,
)  # fmt: skip
CONVERTING = Formula(
    "one shard beside its int64 copy or list",
    "max(item * (1 - masked), masked, 4 * weighted) * T_shard * R",
    MEASURED, "if the largest shard is the last; lower bound: nothing",
)  # fmt: skip

PICKLED = Formula(
    "copies of the dataset in spawned workers", "data * w * R",
    f"{MEASURED}: the dataset object is pickled for each worker, a memmap with all its bytes",
    CLOSE,
)  # fmt: skip
PICKLING = Formula("the pickled dataset while a worker starts", "pickled * R", MEASURED, CLOSE)
FREED = Formula(
    "freed copies that malloc keeps after pickling", "block * R",
    "glibc: blocks over 32 MiB return to the system, the heap keeps holes of smaller ones",
    "measured: none to three blocks (the bounds), by the sizes of shards",
)  # fmt: skip
COPIED_ON_READ = Formula(
    "Python integers copied by workers (copy on write)", "32 * large * T * R",
    f"{MEASURED}: reading an object counts a reference, which writes its page",
    "of one pass; lower bound: nothing is read yet; upper bound: each worker has read all",
)  # fmt: skip
MADE = Formula("samples of the batch under construction", "16 * n * max(w, 1) * R", MEASURED, CLOSE)
READY = Formula(
    "batches ready or in use (with workers in /dev/shm)", "16 * n * (w * prefetch + 1) * R",
    f"{MEASURED}: ids and labels as int64", CLOSE,
)  # fmt: skip
PINNED = Formula(
    "pinned batches", "16 * n * (w * prefetch + 1) * R", "torch's pin_memory thread",
    "not measured; upper bound: allocations rounded to powers of two",
)  # fmt: skip
FILES = Formula(
    "files of the dataset", "(item + beside) * T", MEASURED, "when all of it has been read once"
)
ARROW_FILES = Formula(
    "Arrow files of the dataset", "4 * (1 + masked + weighted) * T",
    "ids and labels as int32: load_from_disk of datasets 5.2 maps them, measured",
    "when all of it has been read once",
)  # fmt: skip
DATASETS_BYTES = 65 << 20
"""What a process that imports `datasets` beside torch has more, and a table that it maps."""

FORKED_DATASETS_BYTES = 55 << 20
"""What a worker forked from such a process writes, and then has alone."""

MAPPED_BY_WORKERS = (*LAZY_LOADING, "datasets")
"""Strategies whose dataset object holds paths alone: a copy for a worker is small."""
_LOADED = {"read": READ, "concatenate": READ, "int64": CAST, "lists": LISTED, "copies": OWN}
"""The dataset in memory, by strategy; the others map its files."""


@dataclass(frozen=True, slots=True)
class Loading:
    """A trainer's way to load a dataset, and the values of the symbols in this module's formulas.

    Each method returns the lines of one kind of memory; amounts of 0 are left out.
    """

    training: TrainingSettings
    symbols: Mapping[str, float]

    @classmethod
    def of(cls, training: TrainingSettings, size: DatasetSize | None, machine: Machine) -> Loading:
        """Return how settings load a dataset; without a dataset, it is empty."""
        size = size or DatasetSize("pretrain", 0, 0, 0)
        imported = DATASETS_BYTES if training.loading == "datasets" else 0
        symbols: dict[str, float] = {
            "R": ranks_per_node(training),
            "w": training.loader_workers,
            "n": training.micro_batch * training.sequence,
            "prefetch": training.prefetch,
            "interpreter": machine.interpreter_bytes + imported,
            "forked": machine.forked_bytes + (FORKED_DATASETS_BYTES if imported else 0),
            "tracker": TRACKER_BYTES,
            "T": size.tokens,
            "T_shard": size.largest_shard_tokens,
            "item": size.item_bytes,
            "beside": size.bytes_per_token - size.item_bytes,
            "masked": int(size.mask),
            "weighted": int(size.weights),
            "large": 1 - size.small_ids,
        }
        return cls(training, symbols | _object_symbols(training.loading, symbols))

    def trainers(self) -> list[Line]:
        """Return the trainers before they load anything."""
        return self._lines(PROCESSES)

    def of_model(self) -> list[Line]:
        """Return what the packages that make a model take in the trainers."""
        return self._lines(IMPORTED)

    def workers(self) -> list[Line]:
        """Return the workers, without the dataset and its batches."""
        if not self.training.loader_workers:
            return []
        return self._lines(SPAWNED if self._spawns else FORKED)

    def opening(self) -> list[Line]:
        """Return the dataset while it is opened, partly in memory twice; no worker has started."""
        loading = self.training.loading
        if loading in MAPPED_BY_WORKERS:
            return []
        lines = self.loaded()
        if loading == "concatenate":
            lines += self._lines(JOINING)
        elif loading in ("int64", "lists"):
            lines += self._lines(CONVERTING, low_bytes=0)
        return lines

    def loaded(self) -> list[Line]:
        """Return the dataset in the memory of the trainers (`copies`: of the workers)."""
        formula = _LOADED.get(self.training.loading)
        if formula is None:
            return []
        return self._lines(formula, low_bytes=formula.evaluate({**self.symbols, "large": 0}))

    def copied(self) -> list[Line]:
        """Return the copies of the dataset in workers."""
        workers = self.training.loader_workers
        if self._spawns:
            return self._lines(PICKLED)
        if not workers or self.training.loading != "lists":
            return []
        of_all = workers * COPIED_ON_READ.evaluate(self.symbols)
        return self._lines(COPIED_ON_READ, low_bytes=0, high_bytes=of_all)

    def starting(self) -> list[Line]:
        """Return the dataset while the last worker starts; the pickled dataset is still there."""
        pickling = self._lines(PICKLING) if self._spawns else []
        return [*self.loaded(), *self.copied(), *pickling] if pickling else []

    def freed(self) -> list[Line]:
        """Return the freed copies of the dataset that malloc keeps after it was sent to workers."""
        if not self._spawns:
            return []
        return self._lines(FREED, low_bytes=0, high_bytes=3 * FREED.evaluate(self.symbols))

    def batches(self) -> list[Line]:
        """Return the batches that are under construction, ready or in use."""
        lines = self._lines(MADE, READY)
        if self.training.pin_memory:
            lines += self._lines(PINNED, high_bytes=2 * PINNED.evaluate(self.symbols))
        return lines

    def shared(self) -> list[Line]:
        """Return the batches in /dev/shm, where workers put them."""
        return self._lines(READY) if self.training.loader_workers else []

    def page_cache(self) -> list[Line]:
        """Return the page cache of the dataset, which all processes share."""
        files = ARROW_FILES if self.training.loading == "datasets" else FILES
        return self._lines(files, low_bytes=0)

    @property
    def _spawns(self) -> bool:
        return self.training.loader_workers > 0 and self.training.start_method == "spawn"

    def _lines(
        self, *formulas: Formula, low_bytes: int | None = None, high_bytes: int | None = None
    ) -> list[Line]:
        lines = (
            formula.line(self.symbols, low_bytes=low_bytes, high_bytes=high_bytes)
            for formula in formulas
        )
        return [line for line in lines if line.high_bytes]


def _object_symbols(loading: str, symbols: Mapping[str, float]) -> dict[str, float]:
    """Return the sizes of the dataset object: in a process, pickled, and its largest heap block.

    A heap block is an array of at most HEAP_BLOCK_BYTES, which malloc takes from its heap.
    """
    if loading in MAPPED_BY_WORKERS:
        return {"data": 0, "pickled": 0, "block": 0}
    alone = {**symbols, "R": 1, "w": 0}
    data = _LOADED.get(loading, READ).evaluate(alone)
    masked, weighted = symbols["masked"], symbols["weighted"]
    if loading == "lists":  # pickled integer: a byte for its kind, and its own bytes
        each = symbols["item"] + 1 + 2 * masked + 9 * weighted
        return {"data": data, "pickled": round(each * symbols["T"]), "block": 0}
    tokens = symbols["T" if loading == "concatenate" else "T_shard"]
    ids, labels = (8, 8) if loading == "int64" else (symbols["item"], 1)
    blocks = [n * tokens for n in (ids, labels * masked, 4 * weighted)]
    block = max((n_bytes for n_bytes in blocks if n_bytes <= HEAP_BLOCK_BYTES), default=0)
    return {"data": data, "pickled": data, "block": block}


_CREATED = (
    "a model is created in fp32; with a state dict loaded without mmap, measured 2.00 times that",
    "upper bound: a checkpoint's state dict beside it, loaded without mmap",
)
CREATED = {
    "full": Formula("model, created by each process", "4 * P * R", *_CREATED),
    "full-16": Formula("model, created in 16 bit by each process", "2 * P * R", *_CREATED),
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


def _settings_of_gpu(training: TrainingSettings) -> dict[str, Any]:
    """Return values for the settings that change nothing in host RAM: such are billed once."""
    values: dict[str, Any] = {"optimizer_step": "foreach", "loss": "full", "fragmentation": 0}
    if not training.activation_offload:
        values |= {"attention": "auto", "checkpointing": "none"}
    return values


def host_limit(
    model: Model | None, size: DatasetSize | None, machine: Machine
) -> Limit[TrainingSettings]:
    """Return the host RAM of a machine, and what settings need of it."""

    @cache
    def billed(training: TrainingSettings) -> Need:
        completed = complete_training(training, model, size)
        loading = Loading.of(completed, size, machine)
        peak = _peak_of(tuple(_moments(model, loading)))
        shm_bytes = sum(line.n_bytes for line in loading.shared())
        return Need(peak.n_bytes, peak.high_bytes, shm_bytes)

    def need(training: TrainingSettings) -> Need:
        return billed(replace(training, **_settings_of_gpu(training)))

    def least(training: TrainingSettings) -> int:
        # The trainers themselves, with the packages that make a model.
        symbols = {"R": ranks_per_node(training), "interpreter": machine.interpreter_bytes}
        formulas = (PROCESSES,) if model is None else (PROCESSES, IMPORTED)
        return sum(formula.evaluate(symbols) for formula in formulas)

    return Limit(need, machine.usable_bytes, machine.shm_bytes, least)


def host_bill(
    model: Model | None,
    training: TrainingSettings,
    size: DatasetSize | None,
    machine: Machine,
    *others: Limit[TrainingSettings],
) -> HostBill:
    """Return the host RAM of one machine that trains a model on a dataset.

    Args:
        model: the model; None: only the loading of the dataset is billed.
        training: settings whose `sequence` is final.
        size: the dataset; None: only the model is billed.
        machine: its memory, and the memory of a bare process there.
        others: limits of other places that advice on host RAM must also meet.

    Raises:
        UsageError: settings contradict each other or the model.
    """
    loading = Loading.of(training, size, machine)
    return HostBill(
        tuple(_moments(model, loading)),
        Bill("host RAM: page cache", tuple(loading.page_cache()), _CACHE_LEAVES_OUT),
        Bill("shared memory (/dev/shm): batches of workers", tuple(loading.shared())),
        host_verdict(training, host_limit(model, size, machine), machine, *others),
    )


def _peak_of(moments: tuple[Bill, ...]) -> Bill:
    return max(moments, key=lambda bill: bill.n_bytes)


def _moments(model: Model | None, loading: Loading) -> Iterator[Bill]:
    """Yield the committed memory of each moment, in order of time."""
    training = loading.training
    trainers = loading.trainers()
    states: tuple[Line, ...] = ()  # those in host RAM, which stay to the end
    if model is not None:
        trainers += loading.of_model()
        created = _created_lines(model, loading)
        yield _bill("initialization", trainers, created)
        in_ram = training.offload != "none" and training.offload_to == "cpu"
        states = rank_states(model, training).host if in_ram else ()
    if opening := loading.opening():  # workers start with the first batch
        yield _bill("opening the dataset", trainers, opening, states)
    processes = [*trainers, *loading.workers()]
    if starting := loading.starting():
        yield _bill("starting the last worker", processes, starting, loading.freed(), states)
    dataset = [*loading.loaded(), *loading.copied(), *loading.freed(), *loading.batches()]
    steady = [*processes, *dataset, *states]
    if model is None:
        yield _bill("training", steady)
        return
    yield _bill("training", steady, offloaded_lines(model, training))
    if training.metric_batches:
        logits = metrics_host_line(training, {**loading.symbols, "V": model.outputs})
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
