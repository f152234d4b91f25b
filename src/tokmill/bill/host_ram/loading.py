"""Host RAM of a dataset while a trainer loads and reads it, by strategy.

The amounts were compared with real loaders in child processes (`tokmill.bill.measuring`); the
measurements are in tests/bill/host_ram/measured.json.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tokmill.bill.dataset_size import DatasetSize
from tokmill.bill.formula import Formula, Line
from tokmill.bill.host_ram.machine import TRACKER_BYTES, Machine
from tokmill.bill.states.parallel import ranks_per_node
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
FORKED = Formula("forked workers", "forked * w * R", MEASURED, CLOSE)
SPAWNED = Formula("spawned workers", "(interpreter * w + tracker) * R", MEASURED, CLOSE)

READ_IDS = Formula("token ids as in the files", "item * T * R", MEASURED, CLOSE)
READ_BESIDE = Formula("masks and weights as in the files", "beside * T * R", MEASURED, CLOSE)
CAST_IDS = Formula("token ids as int64", "8 * T * R", MEASURED, CLOSE)
CAST_BESIDE = Formula(
    "labels as int64, weights", "(8 * masked + 4 * weighted) * T * R", MEASURED, CLOSE
)
LISTED_IDS = Formula(
    "token ids in lists", "(8 + 32 * large) * T * R",
    f"{MEASURED}: a pointer, and an integer object unless it is below 257",
    f"{CLOSE}; lower bound: all ids are below 257",
)  # fmt: skip
LISTED_BESIDE = Formula(
    "masks and weights in lists", "(8 * masked + 40 * weighted) * T * R",
    f"{MEASURED}: 0 and 1 are objects that exist once", CLOSE,
)  # fmt: skip
OWN_IDS = Formula("token ids, read by each worker", "item * T * max(w, 1) * R", MEASURED, CLOSE)
OWN_BESIDE = Formula(
    "masks and weights, read by each worker", "beside * T * max(w, 1) * R", MEASURED, CLOSE
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

_HELD = {
    "memmap": (),
    "lazy": (),
    "datasets": (),
    "read": (READ_IDS, READ_BESIDE),
    "concatenate": (READ_IDS, READ_BESIDE),
    "int64": (CAST_IDS, CAST_BESIDE),
    "lists": (LISTED_IDS, LISTED_BESIDE),
    "copies": (OWN_IDS, OWN_BESIDE),
}
MAPPED_BY_WORKERS = (*LAZY_LOADING, "datasets")
"""Strategies whose dataset object holds paths alone: a copy for a worker is small."""
_OPENING = {"concatenate": JOINING, "int64": CONVERTING, "lists": CONVERTING}


def loading_symbols(
    training: TrainingSettings, size: DatasetSize | None, machine: Machine
) -> dict[str, float]:
    """Return the symbols of this module's formulas; those of an empty one if there is none."""
    size = size or DatasetSize("pretrain", 0, 0, 0)
    symbols: dict[str, float] = {
        "R": ranks_per_node(training),
        "w": training.loader_workers,
        "n": training.micro_batch * training.sequence,
        "prefetch": training.prefetch,
        "interpreter": machine.interpreter_bytes
        + DATASETS_BYTES * (training.loading == "datasets"),
        "forked": machine.forked_bytes,
        "tracker": TRACKER_BYTES,
        "T": size.tokens,
        "T_shard": size.largest_shard_tokens,
        "item": size.item_bytes,
        "beside": size.bytes_per_token - size.item_bytes,
        "masked": int(size.mask),
        "weighted": int(size.weights),
        "large": 1 - size.small_ids,
    }
    return symbols | _object_symbols(training.loading, symbols)


def _object_symbols(loading: str, symbols: Mapping[str, float]) -> dict[str, float]:
    """Return the sizes of the dataset object: in a process, pickled, and its largest heap block.

    A heap block is an array of at most HEAP_BLOCK_BYTES, which malloc takes from its heap.
    """
    if loading in MAPPED_BY_WORKERS:
        return {"data": 0, "pickled": 0, "block": 0}
    alone = {**symbols, "R": 1, "w": 0}
    data = sum(formula.evaluate(alone) for formula in _HELD[loading] or _HELD["read"])
    masked, weighted = symbols["masked"], symbols["weighted"]
    if loading == "lists":  # pickled integer: a byte for its kind, and its own bytes
        each = symbols["item"] + 1 + 2 * masked + 9 * weighted
        return {"data": data, "pickled": round(each * symbols["T"]), "block": 0}
    tokens = symbols["T" if loading == "concatenate" else "T_shard"]
    ids, labels = (8, 8) if loading == "int64" else (symbols["item"], 1)
    blocks = [n * tokens for n in (ids, labels * masked, 4 * weighted)]
    block = max((one for one in blocks if one <= HEAP_BLOCK_BYTES), default=0)
    return {"data": data, "pickled": data, "block": block}


def process_lines(training: TrainingSettings, symbols: Mapping[str, float]) -> list[Line]:
    """Return the memory of trainers and workers before they load anything."""
    if not training.loader_workers:
        return [PROCESSES.line(symbols)]
    workers = SPAWNED if training.start_method == "spawn" else FORKED
    return [PROCESSES.line(symbols), workers.line(symbols)]


def opening_lines(training: TrainingSettings, symbols: Mapping[str, float]) -> list[Line]:
    """Return the dataset while it is opened, partly in memory twice; no worker has started."""
    if training.loading in MAPPED_BY_WORKERS:
        return []
    lines = held_lines(training, symbols)
    if training.loading in _OPENING:
        formula = _OPENING[training.loading]
        low = None if formula is JOINING else 0
        lines.append(formula.line(symbols, low_bytes=low))
    return _present(lines)


def held_lines(training: TrainingSettings, symbols: Mapping[str, float]) -> list[Line]:
    """Return the dataset in the memory of the trainers (`copies`: of the workers)."""
    lines = []
    for formula in _HELD[training.loading]:
        low = formula.evaluate({**symbols, "large": 0}) if formula is LISTED_IDS else None
        lines.append(formula.line(symbols, low_bytes=low))
    return _present(lines)


def copied_lines(training: TrainingSettings, symbols: Mapping[str, float]) -> list[Line]:
    """Return the copies of the dataset in workers."""
    if _spawns(training):
        return _present([PICKLED.line(symbols)])
    if not training.loader_workers or training.loading != "lists":
        return []
    each = COPIED_ON_READ.evaluate(symbols)
    high = each * training.loader_workers
    return _present([COPIED_ON_READ.line(symbols, low_bytes=0, high_bytes=high)])


def starting_lines(training: TrainingSettings, symbols: Mapping[str, float]) -> list[Line]:
    """Return the dataset while the last worker starts; the pickled dataset is still there."""
    if not _spawns(training):
        return []
    pickling = _present([PICKLING.line(symbols)])
    copied = copied_lines(training, symbols)
    return [*held_lines(training, symbols), *copied, *pickling] if pickling else []


def freed_lines(training: TrainingSettings, symbols: Mapping[str, float]) -> list[Line]:
    """Return the freed copies of the dataset that malloc keeps after it was sent to workers."""
    if not _spawns(training):
        return []
    return _present([FREED.line(symbols, low_bytes=0, high_bytes=3 * FREED.evaluate(symbols))])


def batch_lines(training: TrainingSettings, symbols: Mapping[str, float]) -> list[Line]:
    """Return the batches that are under construction, ready or in use."""
    lines = [MADE.line(symbols), READY.line(symbols)]
    if training.pin_memory:
        lines.append(PINNED.line(symbols, high_bytes=2 * PINNED.evaluate(symbols)))
    return lines


def shared_lines(training: TrainingSettings, symbols: Mapping[str, float]) -> list[Line]:
    """Return the batches in /dev/shm, where workers put them."""
    return [READY.line(symbols)] if training.loader_workers else []


def cache_lines(training: TrainingSettings, symbols: Mapping[str, float]) -> list[Line]:
    """Return the page cache of the dataset, which all processes share."""
    files = ARROW_FILES if training.loading == "datasets" else FILES
    return _present([files.line(symbols, low_bytes=0)])


def _spawns(training: TrainingSettings) -> bool:
    return training.loader_workers > 0 and training.start_method == "spawn"


def _present(lines: Iterable[Line]) -> list[Line]:
    return [line for line in lines if line.high_bytes]
