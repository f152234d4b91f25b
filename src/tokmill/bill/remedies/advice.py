"""Whether a model fits on a GPU, the largest batch and sequence that fit, and savings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from tokmill.bill.activations.situation import default_sequence
from tokmill.bill.formula import Bill
from tokmill.bill.gpus import Gpu, Need, gpu_verdict
from tokmill.bill.models.model import Model
from tokmill.bill.remedies.search import Offer, S, Saving, Search, largest, of_serving, of_training
from tokmill.bill.serving import inference_bill
from tokmill.bill.training_bill import training_bill
from tokmill.settings.training import InferenceSettings, TrainingSettings

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
    largest_batch: int
    largest_sequence: int
    is_bounded: bool
    steps: tuple[Offer, ...] = ()
    plan: tuple[Offer, ...] = ()


def training_peak(model: Model, training: TrainingSettings) -> Bill:
    """Return the bill at the peak of a training step."""
    return training_bill(model, training).peak


def advise(model: Model, training: TrainingSettings, gpu: Gpu) -> Advice:
    """Return whether training fits on the GPU and, if its upper bound does not, savings.

    A sequence of 0 means the default of the model.

    Raises:
        UsageError: the settings contradict each other or the model.
    """
    training = replace(training, sequence=training.sequence or default_sequence(model))
    split = training.tensor_parallel if training.sequence_parallel else 1
    return _advice(
        training,
        gpu,
        lambda settings: training_peak(model, settings),
        of_training(training),
        ("micro_batch", "sequence"),
        unit=math.lcm(FINEST_SEQUENCE, training.context_parallel * split),
        positions=model.positions,
    )


def advise_serving(model: Model, settings: InferenceSettings, gpu: Gpu, *, context: int) -> Advice:
    """Return whether serving fits on the GPU and, if its upper bound does not, savings.

    `context`: tokens per sequence if the settings have none.

    Raises:
        UsageError: the GPUs cannot share the model.
    """
    settings = replace(settings, context=settings.context or context)
    return _advice(
        settings,
        gpu,
        lambda other: inference_bill(model, other, context=context),
        of_serving(settings),
        ("batch", "context"),
        unit=FINEST_SEQUENCE,
        positions=model.positions,
    )


def _advice(
    settings: S,
    gpu: Gpu,
    bill_of: Callable[[S], Bill],
    savings: Iterable[Saving],
    names: tuple[str, str],
    *,
    unit: int,
    positions: int,
) -> Advice:
    """Return the advice on settings; `names` are those of batch and sequence.

    Sequences are searched in steps of `unit`, up to the `positions` of the model (0: no limit).
    """
    batch, sequence = names
    search: Search[S] = Search(lambda other: Need.of(bill_of(other)), gpu.memory_bytes)

    def fits(name: str, value: int) -> bool:
        changes: dict[str, Any] = {name: value}
        return search.fits(replace(settings, **changes))

    most = positions or LARGEST_SEQUENCE
    units = largest(lambda n: fits(sequence, min(n * unit, most)), -(-most // unit))
    longest = min(units * unit, most)
    offered = () if search.fits(settings, surely=True) else tuple(savings)
    return Advice(
        gpu=gpu,
        verdict=gpu_verdict(bill_of(settings), gpu),
        largest_batch=largest(lambda n: fits(batch, n), LARGEST_BATCH),
        largest_sequence=longest,
        is_bounded=longest == most,
        steps=search.offers(settings, offered),
        plan=search.plan(settings, offered),
    )
