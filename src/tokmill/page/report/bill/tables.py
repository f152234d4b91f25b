"""Tables of the page's bill besides training: memory of serving, host RAM by loading strategy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from tokmill.bill.dataset_size import DatasetSize
from tokmill.bill.gpus import BARELY, DOES_NOT_FIT, FITS
from tokmill.bill.host_ram.host import host_bill
from tokmill.bill.host_ram.machine import NOT_NOW, Machine
from tokmill.bill.models.model import Model
from tokmill.bill.serving.inference import inference_bill
from tokmill.errors import UsageError
from tokmill.page.report.bill.axes import Axes, near
from tokmill.page.report.bill.cases import IMPOSSIBLE, verdict_digit
from tokmill.page.report.bill.groups import (
    LOADING_GROUPS,
    SERVING_GROUPS,
    grouped,
    loading_group,
    serving_group,
)
from tokmill.settings.inference import InferenceSettings
from tokmill.settings.training import LOADING, TrainingSettings

CONTEXTS = (1024, 2048, 4096, 8192, 32768, 131072)
WEIGHT_TYPES = ("auto", "int8", "int4")
SERVED = (1, 8, 32)
WORKERS = (0, 2, 4, 8)
START_METHODS = ("fork", "spawn")
HOST_VERDICTS = (FITS, BARELY, DOES_NOT_FIT, NOT_NOW, "unknown")
"""A verdict is stored as its place here."""


@dataclass(frozen=True, slots=True)
class Serving:
    """Memory of one GPU that serves a model, for each model, weight type, batch and context.

    Attributes:
        weights: types of the weights.
        batches: sequences at once.
        contexts: tokens of a sequence.
        start: indices of what the settings say: weight type, batch, context.
        amounts: of each case the expected bytes of `SERVING_GROUPS`, then the lower and the upper
            bound of the total; all 0 where the model has fewer positions or it is not possible.
        verdicts: of each case a digit for each GPU, an index of `VERDICTS`.
    """

    weights: tuple[str, ...]
    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    start: tuple[int, int, int]
    amounts: tuple[int, ...]
    verdicts: str

    def data(self) -> dict[str, Any]:
        """Return the table as plain values."""
        return {
            "weights": self.weights, "batches": self.batches, "contexts": self.contexts,
            "start": self.start, "amounts": self.amounts, "verdicts": self.verdicts,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Loading:
    """Host RAM of a machine that loads the dataset, for each way to start, workers and strategy.

    Attributes:
        starts: how workers are started.
        workers: DataLoader workers of each process.
        start: indices of what the settings say: way to start, workers, strategy.
        amounts: of each case the expected bytes of `LOADING_GROUPS` at the peak, then the lower and
            the upper bound of the total.
        verdicts: of each case an index of `HOST_VERDICTS`.
        page_cache: bytes of page cache of any strategy.
        usable_bytes: memory of the machine; 0: not known.
        machine: its name.
    """

    starts: tuple[str, ...]
    workers: tuple[int, ...]
    start: tuple[int, int, int]
    amounts: tuple[int, ...]
    verdicts: str
    page_cache: int
    usable_bytes: int
    machine: str

    def data(self) -> dict[str, Any]:
        """Return the table as plain values."""
        return {
            "starts": self.starts, "workers": self.workers, "strategies": LOADING,
            "start": self.start, "amounts": self.amounts, "verdicts": self.verdicts,
            "page_cache": self.page_cache, "usable_bytes": self.usable_bytes,
        }  # fmt: skip


def serving_of(axes: Axes, settings: InferenceSettings) -> Serving:
    """Return the memory of serving each model; `settings` are those of the bill."""
    own = settings.context or axes.sequences[axes.start[4]]
    contexts = tuple(sorted({*CONTEXTS, own}))
    weights = tuple(dict.fromkeys((*WEIGHT_TYPES, settings.weight_type)))
    batches = near(settings.batch, SERVED)
    amounts: list[int] = []
    verdicts = []
    for each, kind, batch, context in product(axes.models, weights, batches, contexts):
        changed = replace(settings, weight_type=kind, batch=batch, context=context)
        is_own = context == own and each == axes.models[axes.start[0]]
        numbers, digits = _served(each.model, changed, axes, is_own=is_own)
        amounts += numbers
        verdicts.append(digits)
    start = (
        weights.index(settings.weight_type), batches.index(settings.batch), contexts.index(own)
    )  # fmt: skip
    return Serving(weights, batches, contexts, start, tuple(amounts), "".join(verdicts))


def loading_of(training: TrainingSettings, size: DatasetSize, machine: Machine) -> Loading:
    """Return the host RAM of loading a dataset, without a model, on the machine that trains."""
    several = training.loader_workers
    workers = (0, *near(several, WORKERS[1:])) if several else WORKERS
    machine = machine.for_training(training)
    amounts: list[int] = []
    verdicts = []
    page_cache = 0
    for method, n_workers, loading in product(START_METHODS, workers, LOADING):
        how = replace(training, loading=loading, loader_workers=n_workers, start_method=method)
        found = host_bill(None, how, size, machine)
        peak = found.peak
        amounts += grouped(peak.lines, LOADING_GROUPS, loading_group)
        amounts += [peak.low_bytes, peak.high_bytes]
        verdicts.append(str(HOST_VERDICTS.index(found.verdict.said)))
        page_cache = found.page_cache.n_bytes
    start = (
        START_METHODS.index(training.start_method),
        workers.index(training.loader_workers),
        LOADING.index(training.loading if training.loading in LOADING else "memmap"),
    )
    return Loading(
        START_METHODS, workers, start, tuple(amounts), "".join(verdicts), page_cache,
        machine.usable_bytes, machine.name,
    )  # fmt: skip


def _served(
    model: Model, settings: InferenceSettings, axes: Axes, *, is_own: bool
) -> tuple[list[int], str]:
    """Return the numbers and the verdicts of a case of serving; 0 where it is not possible."""
    nothing = [0] * (len(SERVING_GROUPS) + 2)
    impossible = IMPOSSIBLE * len(axes.gpus)
    if 0 < model.positions < settings.context and not is_own:
        return nothing, impossible
    try:
        bill = inference_bill(model, settings, context=settings.context)
    except UsageError:
        return nothing, impossible
    digits = "".join(verdict_digit(bill, bill.n_bytes, gpu) for gpu in axes.gpus)
    groups = grouped(bill.lines, SERVING_GROUPS, serving_group)
    return [*groups, bill.low_bytes, bill.high_bytes], digits
