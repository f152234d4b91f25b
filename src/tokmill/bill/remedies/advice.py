"""Whether a model fits on a GPU, the largest batch and sequence that fit, and savings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from tokmill.bill.activations.situation import default_sequence
from tokmill.bill.bill_settings import complete_training
from tokmill.bill.formula import Bill
from tokmill.bill.gpus import DOES_NOT_FIT, Gpu, Need
from tokmill.bill.models.model import Model
from tokmill.bill.remedies.search import (
    Limit,
    Offer,
    S,
    Saving,
    Search,
    largest,
    of_serving,
    of_training,
    on_host,
)
from tokmill.bill.servers import context_of, server_name
from tokmill.bill.serving import host_experts_bytes, inference_bill
from tokmill.bill.states.states import standing_bytes
from tokmill.bill.training_bill import training_bill
from tokmill.settings.training import InferenceSettings, TrainingSettings

LARGEST_BATCH = 1 << 16
LARGEST_SEQUENCE = 1 << 22
FINEST_SEQUENCE = 64
"""Sequences and contexts are searched in steps of so many tokens."""

_ON_HOST: dict[str, Any] = {
    "initialization": "auto", "loader_workers": 0, "loading": "memmap", "prefetch": 2,
    "start_method": "fork",
}  # fmt: skip
"""Settings of host RAM alone, as the bill of a GPU may have them."""
_OF_ACTIVATIONS: dict[str, Any] = {
    "micro_batch": 1, "checkpointing": "none", "loss": "full", "attention": "auto",
    "activation_offload": False,
}  # fmt: skip
"""Settings that change nothing in weights and optimizer states."""


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
            if it fits without, or they are not enough. Every other limit, such as that of the host
            RAM, is met too.
        with_more_host: if no plan meets all limits: one that would, with more host RAM.
    """

    gpu: Gpu
    verdict: str
    largest_batch: int
    largest_sequence: int
    is_bounded: bool
    steps: tuple[Offer, ...] = ()
    plan: tuple[Offer, ...] = ()
    with_more_host: tuple[Offer, ...] = ()


def training_peak(model: Model, training: TrainingSettings) -> Bill:
    """Return the bill at the peak of a training step."""
    return training_bill(model, training).peak


def gpu_limit(model: Model, gpu: Gpu) -> Limit[TrainingSettings]:
    """Return the memory of a GPU, and what training settings need of it."""

    @cache
    def billed(training: TrainingSettings) -> Need:
        return Need.of(training_peak(model, training))

    def need(training: TrainingSettings) -> Need:
        # Savings of host RAM change nothing here: their combinations are billed once.
        return billed(replace(training, **_ON_HOST))

    @cache
    def standing(training: TrainingSettings) -> int:
        return standing_bytes(model, complete_training(training, model, None))

    def least(training: TrainingSettings) -> int:
        states = standing(replace(training, **_ON_HOST, **_OF_ACTIVATIONS))
        return states + least_activations(model, training)

    return Limit(need, gpu.memory_bytes, least=least)


def least_activations(model: Model, training: TrainingSettings) -> int:
    """Return bytes that are there when backward starts: at least layers' inputs and logits."""
    ranks = training.tensor_parallel * training.context_parallel
    tokens = training.micro_batch * training.sequence
    layers = 0 if training.activation_offload else model.layers // training.pipeline_parallel
    inputs = 2 * tokens * layers * model.hidden
    has_logits = training.loss != "fused" and training.pipeline_parallel == 1
    logits = 4 * tokens * model.outputs if has_logits and model.has_shape else 0
    return (inputs + logits) // ranks


def advise(
    model: Model, training: TrainingSettings, gpu: Gpu, *others: Limit[TrainingSettings]
) -> Advice:
    """Return whether training fits on the GPU and, if its upper bound does not, savings.

    A sequence of 0 means the default of the model. `others` are limits that what is advised must
    also meet; the first is that of the host RAM.

    Raises:
        UsageError: the settings contradict each other or the model.
    """
    training = replace(training, sequence=training.sequence or default_sequence(model))
    split = training.tensor_parallel if training.sequence_parallel else 1
    savings = list(of_training(training))
    if others and others[0].n_bytes:
        savings += on_host(training)
    return _advice(
        training,
        gpu,
        (gpu_limit(model, gpu), *others),
        savings,
        ("micro_batch", "sequence"),
        unit=math.lcm(FINEST_SEQUENCE, training.context_parallel * split),
        positions=model.positions,
    )


def advise_serving(
    model: Model, settings: InferenceSettings, gpu: Gpu, *, context: int, host_bytes: int = 0
) -> Advice:
    """Return whether serving fits on the GPU and, if its upper bound does not, savings.

    `context`: tokens per sequence if the settings have none. `host_bytes`: host RAM of the machine;
    0: not known.

    Raises:
        UsageError: the GPUs cannot share the model.
    """
    # Types that are changed do not change the server.
    tokens = context_of(settings, context)
    settings = replace(settings, context=tokens, server=server_name(settings))

    def need(other: InferenceSettings) -> Need:
        return Need.of(inference_bill(model, other, context=context, gpu=gpu))

    def on_host_of_serving(other: InferenceSettings) -> Need:
        experts = host_experts_bytes(model, other)
        return Need(experts, experts)

    return _advice(
        settings,
        gpu,
        (Limit(need, gpu.memory_bytes), Limit(on_host_of_serving, host_bytes)),
        of_serving(model, settings),
        ("batch", "context"),
        unit=FINEST_SEQUENCE,
        positions=model.positions,
    )


def _advice(
    settings: S,
    gpu: Gpu,
    limits: Sequence[Limit[S]],
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
    # Three searches ask for the needs of the same settings.
    limits = [replace(each, need=cache(each.need)) for each in limits]
    of_gpu = limits[0]
    needed = of_gpu.need(settings)
    # What fits now may not exceed another limit; what exceeds it already would never fit.
    met = [each for each in limits[1:] if each.verdict(each.need(settings)) != DOES_NOT_FIT]
    within: Search[S] = Search(of_gpu, *met)

    def fits(name: str, value: int) -> bool:
        changes: dict[str, Any] = {name: value}
        return within.fits(replace(settings, **changes))

    most = positions or LARGEST_SEQUENCE
    units = largest(lambda n: fits(sequence, min(n * unit, most)), -(-most // unit))
    longest = min(units * unit, most)
    search: Search[S] = Search(*limits)
    offered = () if search.fits_first(settings) else tuple(savings)
    alone: Search[S] = Search(of_gpu, *(replace(each, n_bytes=0) for each in limits[1:]))
    # What does not fit on the GPU alone does not fit with other limits either.
    on_gpu = alone.plan(settings, offered)
    plan = search.plan(settings, offered) if on_gpu else ()
    missed = not plan and of_gpu.verdict(needed) == DOES_NOT_FIT
    return Advice(
        gpu=gpu,
        verdict=of_gpu.verdict(needed),
        largest_batch=largest(lambda n: fits(batch, n), LARGEST_BATCH),
        largest_sequence=longest,
        is_bounded=longest == most,
        steps=search.offers(settings, offered),
        plan=plan,
        with_more_host=on_gpu if missed and len(limits) > 1 else (),
    )
