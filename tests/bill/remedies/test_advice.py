"""Advice on training and serving: the most that fits, and the fewest savings.

Some tests search with a small need, whose arithmetic fits a line.

Advice on serving: the most that a GPU serves, and what makes a model fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tokmill.bill.gpus import Gpu, Need, find_gpu, gpu_verdict
from tokmill.bill.models.load import load_model
from tokmill.bill.remedies.advice import Advice, advise, advise_serving, training_peak
from tokmill.bill.remedies.search import CHANGES_RESULT, COSTLY, Limit, Offer, Search, of_training
from tokmill.bill.serving import inference_bill
from tokmill.errors import UsageError
from tokmill.settings.load import build_config
from tokmill.settings.training import InferenceSettings, ModelSettings, TrainingSettings

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
    return Search(Limit(need, memory_bytes)).plan(training, of_training(training))


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


def test_advice_is_never_more_than_three_savings() -> None:
    helping = ("loss", "checkpointing", "optimizer", "optimizer_step")

    def need(training: TrainingSettings) -> Need:
        n = 1000 - sum(getattr(training, name) != getattr(USUAL, name) for name in helping)
        return Need(n, n)

    assert len(plan_of(997, need)) == 3
    assert plan_of(996, need) == ()


STARTS = [
    ("llama-3-8b", "24GiB", {"adapter": "lora", "weights": "nf4", "micro_batch": 16}),
    ("llama-3-8b", "24GiB", {"adapter": "lora", "weights": "nf4-double", "sequence": 8192}),
    ("llama-3-8b", "A100 80GB", {"precision": "fp32", "attention": "eager"}),
    ("llama-3-8b", "A100 80GB", {"precision": "fp32", "attention": "eager", "sequence": 8192}),
    ("llama-3-8b", "A100 80GB", {"precision": "pure-16", "sequence": 8192, "micro_batch": 2}),
    ("llama-3-8b", "A100 80GB", {"gpus": 8, "sharding": "zero-3", "micro_batch": 8}),
    ("llama-3-70b", "H100", {"gpus": 64, "sharding": "fsdp", "sequence": 8192}),
    ("qwen2.5-0.5b", "T4", {"optimizer": "adafactor", "micro_batch": 8}),
    ("qwen3-30b-a3b", "H100", {"gpus": 16}),
    ("gpt2", "T4", {"precision": "fp32", "micro_batch": 64}),
]


def advised(name: str, gpu: str, settings: dict[str, object]) -> tuple[Advice, TrainingSettings]:
    training = TrainingSettings(**{"sequence": 2048, **settings})
    return advise(load_model(ModelSettings(name=name)), training, find_gpu(gpu)), training


def changed(training: TrainingSettings, options: tuple[str, ...]) -> TrainingSettings:
    """Return the training as the options' own names and values change it."""
    for option in options:
        name, _, value = option.removeprefix("--").partition(" ")
        section = {name.replace("-", "_"): int(value) if value.isdecimal() else value or True}
        found = build_config({"training": section}, where="test").training
        training = replace(training, **{key: getattr(found, key) for key in section})
    return training


@pytest.mark.parametrize(("name", "gpu", "settings"), STARTS)
def test_every_offer_is_what_its_options_really_save(name, gpu, settings):
    found, training = advised(name, gpu, settings)
    assert found.verdict != "fits"
    assert found.steps
    model = load_model(ModelSettings(name=name))
    before = training_peak(model, training).n_bytes
    for step in found.steps:
        after = training_peak(model, changed(training, step.options)).n_bytes
        assert (step.saved_bytes, step.peak_bytes) == (before - after, after)
        assert step.saved_bytes > 0, step.options


@pytest.mark.parametrize(("name", "gpu", "settings"), STARTS)
def test_a_plan_fits_and_none_of_its_remedies_can_be_left_out(name, gpu, settings):
    found, training = advised(name, gpu, settings)
    if not found.plan:
        assert {step.verdict for step in found.steps} <= {"does not fit"}
        return
    model, memory = load_model(ModelSettings(name=name)), find_gpu(gpu).memory_bytes
    for left_out in (None, *found.plan):
        kept = [option for step in found.plan if step is not left_out for option in step.options]
        try:
            peak = training_peak(model, changed(training, tuple(kept)))
        except UsageError:
            continue
        need = peak.high_bytes if found.plan[-1].verdict == "fits" else peak.n_bytes
        assert (need <= memory) == (left_out is None), left_out


def test_where_activations_are_short_checkpointing_comes_before_offload():
    found, _ = advised("llama-3-8b", "A100 80GB", {"precision": "pure-16", "micro_batch": 4})
    names = [step.name for step in found.plan]
    assert "activation checkpointing" in names
    assert "offload" not in names


@pytest.mark.parametrize(
    ("name", "settings", "options"),
    [
        # Selective checkpointing or a fused loss would not fit, together with less room only.
        ("llama-3-8b", {"adapter": "qlora"}, ["--checkpointing full"]),
        ("mistral-7b", {"adapter": "lora"}, ["--checkpointing full"]),
        ("llama-3-8b", {"adapter": "lora"}, ["--loss fused", "--checkpointing full"]),
    ],
)
def test_the_simplest_that_fits_with_room_is_advised(
    name: str, settings: dict[str, object], options: list[str]
) -> None:
    found, _ = advised(name, "RTX 4090", settings)
    assert [option for step in found.plan for option in step.options] == options
    assert found.plan[-1].high_bytes <= find_gpu("RTX 4090").memory_bytes


@pytest.mark.parametrize("adapter", ["none", "lora", "qlora"])
@pytest.mark.parametrize("name", ["llama-3-8b", "llama-2-70b"])
def test_one_gpu_is_never_told_to_share_with_others(name: str, adapter: str) -> None:
    found, _ = advised(name, "RTX 4090", {"adapter": adapter})
    offered = [option for step in (*found.steps, *found.plan) for option in step.options]
    assert any(option.startswith("--offload") for option in offered)
    assert not any(option.startswith("--sharding") for option in offered)


def test_without_a_part_that_matters_no_advice_says_that_it_fits() -> None:
    found, _ = advised("llama-3-8b", "RTX 4090", {"adapter": "dora"})
    assert found.verdict == "does not fit"
    assert {step.verdict for step in (*found.steps, *found.plan)} <= {"at least", "does not fit"}


def test_logits_kept_for_metrics_are_the_first_saving():
    settings = {"precision": "pure-16", "metric_batches": 500, "micro_batch": 2}
    found, _ = advised("qwen2.5-0.5b", "A100 80GB", settings)
    assert found.steps[0].options == ("--eval-accumulation 1",)
    assert found.plan[0].options == ("--eval-accumulation 1",)
    assert found.steps[0].verdict != "does not fit"


SERVED = load_model(ModelSettings(name="llama-3-8b"))
SETTINGS = InferenceSettings(context=1024)


def fits_served(gpu: Gpu, **changed: int) -> bool:
    settings = replace(SETTINGS, **changed)
    bill = inference_bill(SERVED, settings, context=1024, gpu=gpu)
    return gpu_verdict(bill, gpu) != "does not fit"


def served(gpu: Gpu, settings: InferenceSettings = SETTINGS) -> Advice:
    return advise_serving(SERVED, settings, gpu, context=1024)


def test_the_largest_batch_served_fits_and_one_more_does_not():
    gpu = Gpu("24GiB", 24 << 30)
    most = served(gpu)
    assert fits_served(gpu, batch=most.largest_batch)
    assert not fits_served(gpu, batch=most.largest_batch + 1)


def test_the_longest_context_fits_and_64_tokens_more_do_not():
    gpu = Gpu("18GiB", 18 << 30)
    most = served(gpu)
    assert not most.is_bounded
    assert most.largest_sequence % 64 == 0
    assert fits_served(gpu, context=most.largest_sequence)
    assert not fits_served(gpu, context=most.largest_sequence + 64)


def test_the_model_has_a_longest_context_and_a_small_gpu_none():
    assert served(Gpu("80GiB", 80 << 30)).is_bounded
    assert served(Gpu("8GiB", 8 << 30)).largest_batch == 0


@pytest.mark.parametrize(
    ("gpu", "settings", "expected"),
    [
        # The weights fit, the cache of 48 x 8k tokens does not: half of its 48 GiB does.
        ("A6000", {"batch": 48, "context": 8192, "weight_type": "int8"}, ["--kv-type fp8"]),
        ("4060", {"context": 1024}, ["--weight-type int4"]),
        ("T4", {"context": 8192, "batch": 64, "weight_type": "int4", "kv_type": "int4"},
         ["--serving-gpus 4"]),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_rounded_before_less_is_served(gpu, settings, expected):
    room = find_gpu(gpu)
    found = served(room, InferenceSettings(**settings))
    assert found.verdict == "does not fit"
    assert [option for step in found.plan for option in step.options] == expected
    assert found.plan[-1].verdict != "does not fit"


def test_more_gpus_are_advised_before_fewer_users():
    model = load_model(ModelSettings(name="qwen3-32b"))
    many = InferenceSettings(batch=100, context=8192)
    found = advise_serving(model, many, find_gpu("H100"), context=8192)
    assert [step.options for step in found.plan] == [("--serving-gpus 8",)]


def test_of_weights_in_4_bits_that_do_not_fit_more_gpus_are_advised():
    model = load_model(ModelSettings(name="llama-3-70b"))
    settings = InferenceSettings(weight_type="int4", kv_type="int4", context=256)
    found = advise_serving(model, settings, find_gpu("4090"), context=256)
    assert [step.options for step in found.plan] == [("--serving-gpus 2",)]


def test_what_needs_more_or_trains_something_else_is_advised_last() -> None:
    training = TrainingSettings(gpus=8, micro_batch=4, sequence=2048)
    every = [(saving.level, saving.name) for saving in of_training(training)]
    assert [level for level, _ in every] == sorted(level for level, _ in every)
    assert {name for level, name in every if level == COSTLY} == {
        "tensor parallelism", "context parallelism", "expert parallelism", "pipeline parallelism",
        "activations in host RAM", "offload",
    }  # fmt: skip
    assert {name for level, name in every if level == CHANGES_RESULT} == {
        "smaller micro batch", "16-bit weights", "shorter sequences", "LoRA", "QLoRA",
    }  # fmt: skip
