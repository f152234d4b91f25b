"""Whether a model fits on a GPU, the largest batch and sequence that fit, and savings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache

from tokmill.bill.activations.situation import default_sequence
from tokmill.bill.formula import Bill
from tokmill.bill.gpus import Gpu, Need, gpu_verdict
from tokmill.bill.models.known import known_config, known_models
from tokmill.bill.models.load import model_from_config
from tokmill.bill.models.model import Model
from tokmill.bill.remedies.savings import Case, S, Saving, of_serving, of_training
from tokmill.bill.remedies.search import Offer, Search, largest
from tokmill.bill.serving.inference import inference_bill
from tokmill.bill.training_bill import training_bill
from tokmill.settings.inference import InferenceSettings
from tokmill.settings.training import TrainingSettings

LARGEST_BATCH = 1 << 16
LARGEST_SEQUENCE = 1 << 22
FINEST_SEQUENCE = 64
"""Sequences and contexts are searched in steps of so many tokens."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Whether training or serving fits on a GPU, and how to make it fit.

    Attributes:
        gpu: the GPU.
        verdict: see `gpu_verdict`.
        free_bytes: memory of the GPU minus the expected need; negative if it does not fit.
        largest_batch: sequences (of training: in a micro batch) whose expected need fits, all else
            equal; 0: not even one.
        largest_sequence: tokens of a sequence (of serving: the context) whose expected need fits,
            all else equal; 0: not even 64.
        is_bounded: `largest_sequence` is the model's maximum, and more would fit.
        steps: savings, each applied alone.
        plan: the fewest savings that together make it fit, at most three, each of them needed; ()
            if it fits without, or they are not enough.
    """

    gpu: Gpu
    verdict: str
    free_bytes: int
    largest_batch: int
    largest_sequence: int
    is_bounded: bool
    steps: tuple[Offer, ...] = ()
    plan: tuple[Offer, ...] = ()


def training_peak(model: Model, training: TrainingSettings) -> Bill:
    """Return the bill at the peak of a training step."""
    return training_bill(model, training).peak


def built_in_smaller(model: Model) -> tuple[Model, ...]:
    """Return the built-in models of a model's family with fewer parameters, the largest first."""
    smaller = [each for each in _built_in(model.family) if each.parameters < model.parameters]
    return tuple(sorted(smaller, key=lambda each: -each.parameters))


@cache
def _built_in(family: str) -> tuple[Model, ...]:
    configs = (known_config(name) for name in known_models())
    models = (
        model_from_config(config, name)
        for name, config in filter(None, configs)
        if config.get("model_type") == family
    )
    return tuple(models)


def advise(
    model: Model,
    training: TrainingSettings,
    gpu: Gpu,
    *,
    peak: Callable[[Model, TrainingSettings], Bill] = training_peak,
    smaller_models: Callable[[Model], tuple[Model, ...]] = built_in_smaller,
) -> Advice:
    """Return whether training fits on the GPU and, if its upper bound does not, savings.

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
    split = training.tensor_parallel if training.sequence_parallel else 1
    case = Case(model, training)
    return _advice(
        case,
        gpu,
        lambda other: peak(other.model or model, other.settings),
        of_training(case, smaller_models),
        ("micro_batch", "sequence"),
        math.lcm(FINEST_SEQUENCE, training.context_parallel * split),
    )


def advise_serving(model: Model, settings: InferenceSettings, gpu: Gpu, *, context: int) -> Advice:
    """Return whether serving fits on the GPU and, if its upper bound does not, savings.

    `context`: tokens per sequence if the settings have none.

    Raises:
        UsageError: the GPUs cannot share the model.
    """
    case = Case(model, replace(settings, context=settings.context or context))
    return _advice(
        case,
        gpu,
        lambda other: inference_bill(model, other.settings, context=context),
        of_serving(case),
        ("batch", "context"),
        FINEST_SEQUENCE,
    )


def _advice(
    case: Case[S],
    gpu: Gpu,
    bill_of: Callable[[Case[S]], Bill],
    savings: Iterable[Saving],
    names: tuple[str, str],
    unit: int,
) -> Advice:
    """Return the advice on a case.

    `names` are the settings of batch and sequence; sequences are searched in steps of `unit`.
    """
    bill, (batch, sequence) = bill_of(case), names

    def need(other: Case[S]) -> Need:
        return Need.of(bill_of(other))

    search = Search(need, gpu.memory_bytes)
    positions = case.model.positions if case.model else 0
    most = positions or LARGEST_SEQUENCE
    units = largest(
        lambda n: search.fits(case.having({sequence: min(n * unit, most)})), -(-most // unit)
    )
    longest = min(units * unit, most)
    offered = () if search.fits(case, surely=True) else tuple(savings)
    return Advice(
        gpu=gpu,
        verdict=gpu_verdict(bill, gpu),
        free_bytes=gpu.memory_bytes - bill.n_bytes,
        largest_batch=largest(lambda n: search.fits(case.having({batch: n})), LARGEST_BATCH),
        largest_sequence=longest,
        is_bounded=longest == most,
        steps=search.offers(case, offered),
        plan=search.plan(case, offered),
    )
