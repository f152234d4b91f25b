"""Whether a model fits on a GPU, the largest batch and sequence that fit, and remedies."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from tokmill.bill.activations.situation import default_sequence
from tokmill.bill.formula import Bill
from tokmill.bill.gpus import Gpu
from tokmill.bill.models.known import known_config, known_models
from tokmill.bill.models.load import model_from_config
from tokmill.bill.models.model import Model
from tokmill.bill.remedies.case import Case
from tokmill.bill.remedies.search import Offer, Search, largest
from tokmill.bill.remedies.table import on_gpu
from tokmill.bill.serving.inference import inference_bill
from tokmill.bill.training_bill import training_bill
from tokmill.bill.verdict import AT_LEAST, DOES_NOT_FIT, FITS, Need, Room, verdict
from tokmill.settings.inference import InferenceSettings
from tokmill.settings.training import TrainingSettings

LARGEST_BATCH = 1 << 16
LARGEST_SEQUENCE = 1 << 22
FINEST_SEQUENCE = 64
"""Sequences and contexts are searched in steps of so many tokens."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Whether training fits on a GPU, and how to make it fit.

    Attributes:
        gpu: the GPU.
        verdict: see `gpu_verdict`.
        free_bytes: memory of the GPU minus the expected peak; negative if it does not fit.
        largest_micro_batch: sequences whose expected peak fits, all else equal; 0: not even one.
        largest_sequence: tokens whose expected peak fits, all else equal; 0: not even 64.
        is_bounded: `largest_sequence` is the model's maximum, and more would fit.
        steps: remedies that save memory, each applied alone.
        plan: remedies that together make it fit, the cheapest first, each of them needed; () if
            it fits without, or no remedies are enough.
    """

    gpu: Gpu
    verdict: str
    free_bytes: int
    largest_micro_batch: int
    largest_sequence: int
    is_bounded: bool
    steps: tuple[Offer, ...] = ()
    plan: tuple[Offer, ...] = ()


@dataclass(frozen=True, slots=True)
class MostServed:
    """The largest batch at the context, and the longest context of the batch; 0 if none fits.

    `is_bounded`: the context is the model's maximum, and more would fit.
    """

    batch: int
    context: int
    is_bounded: bool


def training_peak(model: Model, training: TrainingSettings) -> Bill:
    """Return the bill at the peak of a training step."""
    return training_bill(model, training).peak


def gpu_verdict(bill: Bill, gpu: Gpu) -> str:
    """Return whether a bill fits on a GPU; AT_LEAST if it would, but a part is not known."""
    found = verdict(Need(bill.n_bytes, bill.high_bytes), Room(gpu.memory_bytes))
    return AT_LEAST if bill.missing and found != DOES_NOT_FIT else found


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
    """Return whether training fits on the GPU and, if its upper bound does not, the remedies.

    Args:
        model: the model.
        training: its settings; a sequence of 0 means the default of the model.
        gpu: the GPU of every rank.
        peak: returns the bill of a rank at its peak.
        smaller_models: returns models that may replace this one, the largest first.

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
    split = training.tensor_parallel if training.sequence_parallel else 1
    unit = math.lcm(FINEST_SEQUENCE, training.context_parallel * split)
    sequence = _longest(lambda n: search.fits(case.having({"sequence": n})), unit, most)
    advice = Advice(
        gpu=gpu,
        verdict=gpu_verdict(bill, gpu),
        free_bytes=gpu.memory_bytes - bill.n_bytes,
        largest_micro_batch=largest(
            lambda n: search.fits(case.having({"micro_batch": n})), LARGEST_BATCH
        ),
        largest_sequence=sequence,
        is_bounded=sequence == most,
    )
    if search.verdict(case) == FITS:
        return advice
    remedies = on_gpu(smaller_models)
    return replace(advice, steps=search.offers(case, remedies), plan=search.plan(case, remedies))


def most_served(model: Model, settings: InferenceSettings, gpu: Gpu, context: int) -> MostServed:
    """Return the most that a GPU serves by the expected memory.

    `context`: tokens per sequence if the settings have none.
    """
    settings = replace(settings, context=settings.context or context)

    def fits(batch: int, length: int) -> bool:
        changed = replace(settings, batch=batch, context=length)
        return inference_bill(model, changed, context=length).n_bytes <= gpu.memory_bytes

    most = model.positions or LARGEST_SEQUENCE
    longest = _longest(lambda n: fits(settings.batch, n), FINEST_SEQUENCE, most)
    batch = largest(lambda n: fits(n, settings.context), LARGEST_BATCH)
    return MostServed(batch, longest, is_bounded=longest == most)


@cache
def _built_in(family: str) -> tuple[Model, ...]:
    configs = (known_config(name) for name in known_models())
    models = (
        model_from_config(config, name)
        for name, config in filter(None, configs)
        if config.get("model_type") == family
    )
    return tuple(models)


def _longest(fits: Callable[[int], bool], unit: int, most: int) -> int:
    """Return the longest sequence that fits: a multiple of `unit`, or `most` itself."""
    units = largest(lambda n: fits(min(n * unit, most)), -(-most // unit))
    return min(units * unit, most)
