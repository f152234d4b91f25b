"""Advice on training: the most that fits, and the fewest savings.

Most tests search with a small need, whose arithmetic fits a line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tokmill.bill.gpus import BARELY, DOES_NOT_FIT, Gpu, Need
from tokmill.bill.models.load import load_model
from tokmill.bill.remedies.advice import advise, training_peak
from tokmill.bill.remedies.savings import of_training
from tokmill.bill.remedies.search import Offer, Search
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings

MODEL = load_model(ModelSettings(name="gpt2"))
USUAL = TrainingSettings(sequence=1024)


def need_of(training: TrainingSettings) -> Need:
    """States of 8000, activations of 1 a token; 10% more at the most."""
    states = 8000
    states //= {"zero-3": training.gpus}.get(training.sharding, 1)
    states //= {"none": 1, "optimizer": 2, "all": 8}[training.offload]
    states //= {"none": 1, "lora": 10, "qlora": 20}[training.adapter]
    activations = training.micro_batch * training.sequence
    activations //= {"none": 1, "selective": 1, "full": 4}[training.checkpointing]
    n_bytes = states + activations
    return Need(n_bytes, n_bytes * 11 // 10)


def plan_of(
    memory_bytes: int,
    need: Callable[[TrainingSettings], Need] = need_of,
    training: TrainingSettings = USUAL,
) -> tuple[Offer, ...]:
    return Search(need, memory_bytes).plan(training, of_training(training))


def options_of(plan: tuple[Offer, ...]) -> list[str]:
    return [option for offer in plan for option in offer.options]


@pytest.mark.parametrize(
    ("memory_bytes", "surely", "fits"),
    [(9926, True, True), (9925, True, False), (9024, False, True), (9023, False, False)],
)
def test_an_expected_need_fits_or_surely_an_upper_bound(
    memory_bytes: int, surely: bool, fits: bool
) -> None:
    assert Search(need_of, memory_bytes).fits(USUAL, surely=surely) == fits


def fits(gpu: Gpu, **changed: Any) -> bool:
    return training_peak(MODEL, replace(USUAL, **changed)).n_bytes <= gpu.memory_bytes


def test_the_largest_batch_fits_and_one_more_does_not() -> None:
    gpu = Gpu("16GiB", 16 << 30)
    most = advise(MODEL, USUAL, gpu).largest_batch
    assert fits(gpu, micro_batch=most)
    assert not fits(gpu, micro_batch=most + 1)
    assert advise(MODEL, USUAL, Gpu("1GiB", 1 << 30)).largest_batch == 0


def test_the_largest_sequence_ends_at_the_memory_or_the_models_positions() -> None:
    gpu = Gpu("16GiB", 16 << 30)
    batch = advise(MODEL, USUAL, gpu).largest_batch + 1
    found = advise(MODEL, replace(USUAL, micro_batch=batch), gpu)
    assert not found.is_bounded
    assert found.largest_sequence % 64 == 0
    assert fits(gpu, micro_batch=batch, sequence=found.largest_sequence)
    assert not fits(gpu, micro_batch=batch, sequence=found.largest_sequence + 64)
    bounded = advise(MODEL, USUAL, gpu)
    assert (bounded.largest_sequence, bounded.is_bounded) == (1024, True)
    small = advise(MODEL, USUAL, Gpu("1GiB", 1 << 30))
    assert (small.largest_sequence, small.is_bounded) == (0, False)


def test_every_remedy_is_billed_alone_and_shown_if_it_needs_less() -> None:
    training = replace(USUAL, micro_batch=8, gpus=2)
    offers = Search(need_of, 5000).offers(training, of_training(training))
    steps = {offer.name: offer for offer in offers}
    assert list(steps) == [
        "activation checkpointing", "gradient accumulation instead of batch", "shared weights",
        "offload", "smaller micro batch", "shorter sequences", "LoRA", "QLoRA",
    ]  # fmt: skip
    zero = steps["shared weights"]
    assert (zero.options, zero.saved_bytes, zero.peak_bytes, zero.verdict) == (
        ("--sharding zero-3",), 4000, 12_192, DOES_NOT_FIT
    )  # fmt: skip
    assert steps["smaller micro batch"].saved_bytes == 7 * 1024


def test_one_saving_that_fits_with_room_comes_before_two_that_need_less() -> None:
    # 8,000 of states, and 4,096 of activations or a quarter: 9,926 are needed for the upper bound.
    training = replace(USUAL, micro_batch=4)
    assert options_of(plan_of(10_000, training=training)) == ["--checkpointing full"]
    assert options_of(plan_of(9_900, training=training)) != ["--checkpointing full"]


def test_what_fits_by_the_estimate_alone_is_advised_where_nothing_has_room() -> None:
    def need(training: TrainingSettings) -> Need:
        n_bytes = 900 if training.checkpointing == "full" else 1100
        return Need(n_bytes, n_bytes + 100)

    assert [offer.verdict for offer in plan_of(950, need)] == [BARELY]
    assert plan_of(899, need) == ()


def test_advice_is_never_more_than_three_savings() -> None:
    helping = ("loss", "checkpointing", "optimizer", "optimizer_step")

    def need(training: TrainingSettings) -> Need:
        n = 1000 - sum(getattr(training, name) != getattr(USUAL, name) for name in helping)
        return Need(n, n)

    assert len(plan_of(997, need)) == 3
    assert plan_of(996, need) == ()


def test_offload_is_not_planned_where_only_activations_are_short() -> None:
    def need(training: TrainingSettings) -> Need:
        states = 500 if training.offload == "none" else 100
        n_bytes = states + (200 if training.checkpointing == "full" else 800)
        return Need(n_bytes, n_bytes)

    assert options_of(plan_of(900, need)) == ["--checkpointing full"]
