"""What fits on a GPU: a verdict, the largest batch and sequence, and remedies where it does not."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from tokmill.bill.activations.situation import default_sequence
from tokmill.bill.models.known import known_config, known_models
from tokmill.bill.models.load import model_from_config
from tokmill.bill.remedies.case import Case
from tokmill.bill.remedies.search import Search, largest
from tokmill.bill.remedies.table import on_gpu
from tokmill.bill.training_bill import training_bill
from tokmill.bill.verdict import DOES_NOT_FIT, FITS, Need, Room, verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokmill.bill.formula import Bill
    from tokmill.bill.gpus import Gpu
    from tokmill.bill.models.model import Model
    from tokmill.bill.remedies.search import Offer
    from tokmill.settings.training import TrainingSettings

LARGEST_MICRO_BATCH = 1 << 16
LARGEST_SEQUENCE = 1 << 22
FINEST_SEQUENCE = 64
"""Sequences are searched in steps of so many tokens."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Whether training fits, and what to do.

    `free_bytes` is what the expected peak leaves (below 0: lacks). The largest micro batch
    (sequences) and sequence (tokens) are those whose expected peak fits with all else equal, 0 if
    none does; `is_bounded`: the sequence is the model's maximum, and more would fit. `steps` are
    the remedies that need less, each applied alone; `plan` those that together make it fit, the
    cheapest first, each of them needed; () if it fits or nothing is enough.
    """

    gpu: Gpu
    verdict: str
    free_bytes: int
    largest_micro_batch: int
    largest_sequence: int
    is_bounded: bool
    steps: tuple[Offer, ...] = ()
    plan: tuple[Offer, ...] = ()


def training_peak(model: Model, training: TrainingSettings) -> Bill:
    """Return the bill of the moment of a training step that needs most."""
    return training_bill(model, training).peak


def gpu_verdict(bill: Bill, gpu: Gpu) -> str:
    """Return whether a bill fits on a GPU, and what is missing from it."""
    found = verdict(Need(bill.n_bytes, bill.high_bytes), Room(gpu.memory_bytes))
    if bill.missing and found != DOES_NOT_FIT:
        return f"unknown: without {bill.missing} it {found}"
    return found


def built_in_smaller(model: Model) -> tuple[Model, ...]:
    """Return the built-in models of a model's family with fewer parameters, the largest first."""
    found = [each for each in _built_in(model.family) if each.parameters < model.parameters]
    return tuple(sorted(found, key=lambda each: -each.parameters))


def advise(
    model: Model,
    training: TrainingSettings,
    gpu: Gpu,
    *,
    peak: Callable[[Model, TrainingSettings], Bill] = training_peak,
    smaller_models: Callable[[Model], tuple[Model, ...]] = built_in_smaller,
) -> Advice:
    """Return what fits on the GPU and, where the upper bound does not, the remedies.

    A sequence of 0 is what the bill takes for it. `peak` gives the bill of a rank's peak,
    `smaller_models` other models to choose from, the largest first.

    Raises:
        UsageError: the settings contradict each other or the model.
    """
    training = replace(training, sequence=training.sequence or default_sequence(model))
    case, bill = Case(model, training), peak(model, training)

    def need(other: Case) -> Need:
        found = peak(other.model or model, other.training)
        return Need(found.n_bytes, found.high_bytes)

    search = Search(need, Room(gpu.memory_bytes))
    most = model.positions or LARGEST_SEQUENCE
    sequence = _largest_sequence(search, case, most)
    advice = Advice(
        gpu=gpu,
        verdict=search.verdict(case),
        free_bytes=gpu.memory_bytes - bill.n_bytes,
        largest_micro_batch=_largest_micro_batch(search, case),
        largest_sequence=sequence,
        is_bounded=sequence == most,
    )
    if advice.verdict == FITS:
        return advice
    remedies = on_gpu(smaller_models)
    return replace(advice, steps=search.offers(case, remedies), plan=search.plan(case, remedies))


@cache
def _built_in(family: str) -> tuple[Model, ...]:
    configs = (known_config(name) for name in known_models())
    models = (
        model_from_config(config, name)
        for name, config in filter(None, configs)
        if config.get("model_type") == family
    )
    return tuple(models)


def _largest_micro_batch(search: Search, case: Case) -> int:
    return largest(
        lambda size: search.fits(case.having({"micro_batch": size})), LARGEST_MICRO_BATCH
    )


def _largest_sequence(search: Search, case: Case, most: int) -> int:
    """Return the longest sequence that fits, a multiple of what divides it or `most` itself."""
    training = case.training
    split = training.tensor_parallel if training.sequence_parallel else 1
    unit = math.lcm(FINEST_SEQUENCE, training.context_parallel * split)

    def fits(units: int) -> bool:
        return search.fits(case.having({"sequence": min(units * unit, most)}))

    return min(largest(fits, -(-most // unit)) * unit, most)
