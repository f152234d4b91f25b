"""Advice asks a bill; these tests give it a small one, whose arithmetic fits a line."""

import pytest

from tokmill.bill.formula import Bill, Line
from tokmill.bill.gpus import BARELY, DOES_NOT_FIT, Gpu
from tokmill.bill.models.load import load_model
from tokmill.bill.models.model import Attention, Model
from tokmill.bill.remedies.advice import advise, built_in_smaller, gpu_verdict
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings


def a_model(name="tiny", layers=8, positions=4096):
    attention = Attention(heads=8, kv_heads=4, head_dim=8)
    return Model(name, "llama", layers, 64, 128, 100, positions, False, "silu", attention, ())


def peak(model, training):
    """States of 1000 a layer, activations of 1 a token; 10% more at the most."""
    states = 1000 * model.layers
    states //= {"zero-3": training.gpus}.get(training.sharding, 1)
    states //= {"none": 1, "optimizer": 2, "all": 8}[training.offload]
    states //= {"none": 1, "lora": 10, "qlora": 20}[training.adapter]
    activations = training.micro_batch * training.sequence
    activations //= {"none": 1, "selective": 1, "full": 4}[training.checkpointing]
    n_bytes = states + activations
    return Bill("peak", (Line("all", n_bytes, n_bytes // 2, n_bytes * 11 // 10, "x"),))


def advice(memory_bytes, model=None, smaller=(), **training):
    return advise(
        model or a_model(),
        TrainingSettings(**{"sequence": 1024, "micro_batch": 1, **training}),
        Gpu("test", memory_bytes),
        peak=peak,
        smaller_models=lambda model: smaller,
    )


def plan(*arguments, **settings):
    return [option for step in advice(*arguments, **settings).plan for option in step.options]


@pytest.mark.parametrize(
    ("memory_bytes", "said"),
    [(9926, "fits"), (9925, BARELY), (9024, BARELY),
     (9023, "does not fit")],
)  # fmt: skip
def test_the_verdict_is_of_the_expected_and_of_the_upper_bound(memory_bytes, said):
    found = advice(memory_bytes)
    assert found.verdict == said
    assert found.free_bytes == memory_bytes - 9024
    assert gpu_verdict(peak(a_model(), TrainingSettings(sequence=1024)), found.gpu) == said


@pytest.mark.parametrize(
    ("memory_bytes", "micro_batch"), [(8000 + 1023, 0), (8000 + 1024, 1), (8000 + 7 * 1024 + 5, 7)]
)
def test_the_largest_batch_is_the_last_that_fits(memory_bytes, micro_batch):
    assert advice(memory_bytes).largest_batch == micro_batch


@pytest.mark.parametrize(
    ("memory_bytes", "sequence", "is_bounded"),
    [(8063, 0, False), (8064, 64, False), (8000 + 1000, 960, False), (8000 + 4095, 4032, False),
     (8000 + 4096, 4096, True), (99_000, 4096, True)],
)  # fmt: skip
def test_the_largest_sequence_ends_at_the_memory_or_the_models_positions(
    memory_bytes, sequence, is_bounded
):
    found = advice(memory_bytes)
    assert (found.largest_sequence, found.is_bounded) == (sequence, is_bounded)


def test_every_remedy_is_billed_alone_and_shown_if_it_needs_less():
    found = advice(5000, micro_batch=8, gpus=2)
    steps = {step.name: step for step in found.steps}
    assert list(steps) == [
        "activation checkpointing", "gradient accumulation instead of batch", "shared weights",
        "offload", "smaller micro batch", "shorter sequences", "LoRA", "QLoRA",
    ]  # fmt: skip
    zero = steps["shared weights"]
    assert (zero.options, zero.saved_bytes, zero.peak_bytes, zero.verdict) == (
        ("--sharding zero-3",), 4000, 12_192, DOES_NOT_FIT
    )  # fmt: skip
    assert steps["smaller micro batch"].saved_bytes == 7 * 1024


def test_a_plan_that_needs_another_model_takes_the_largest_that_fits():
    smaller = (a_model("middle", layers=4), a_model("small", layers=2), a_model("mini", layers=1))
    least = {"adapter": "qlora", "offload": "all", "checkpointing": "full", "sequence": 256}
    found = advice(90, smaller=smaller, **least)
    assert [step.options for step in found.plan] == [("--model small",)]
    assert found.plan[-1].high_bytes <= 90


def test_one_saving_that_fits_with_room_comes_before_two_that_need_less():
    # 8,000 of states, and 4,096 of activations or a quarter: 9,926 are needed for the upper bound.
    assert plan(10_000, micro_batch=4) == ["--checkpointing full"]
    assert plan(9_900, micro_batch=4) != ["--checkpointing full"]


def test_what_fits_by_the_estimate_alone_is_advised_where_nothing_has_room():
    def n_bytes(training):
        return 900 if training.checkpointing == "full" else 1100

    found = advice_by(n_bytes, 950, margin=100)
    assert [step.verdict for step in found.plan] == [BARELY]
    assert advice_by(n_bytes, 899).plan == ()


def test_advice_is_never_more_than_three_savings():
    helping = ("loss", "checkpointing", "optimizer", "optimizer_step")
    usual = TrainingSettings()

    def n_bytes(training):
        return 1000 - sum(getattr(training, name) != getattr(usual, name) for name in helping)

    assert len(advice_by(n_bytes, 997).plan) == 3
    assert advice_by(n_bytes, 996).plan == ()


def advice_by(n_bytes, memory_bytes, margin=0):
    """Return the advice where `n_bytes(training)` is the peak, and `margin` more the most."""

    def peak(model, training):
        size = n_bytes(training)
        return Bill("peak", (Line("all", size, size, size + margin, "x"),))

    gpu = Gpu("test", memory_bytes)
    return advise(a_model(), TrainingSettings(), gpu, peak=peak, smaller_models=lambda model: ())


def a_plan_by(n_bytes, memory_bytes):
    return [each for step in advice_by(n_bytes, memory_bytes).plan for each in step.options]


def test_offload_is_not_planned_where_only_activations_are_short():
    def n_bytes(training):
        states = 500 if training.offload == "none" else 100
        return states + (200 if training.checkpointing == "full" else 800)

    assert a_plan_by(n_bytes, 900) == ["--checkpointing full"]


def test_built_in_models_of_the_family_come_largest_first():
    model = load_model(ModelSettings(name="qwen2.5-7b"))
    smaller = built_in_smaller(model)
    sizes = [each.parameters for each in smaller]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] < model.parameters
    assert {each.family for each in smaller} == {"qwen2"}
    assert "qwen2.5-0.5b" in {each.name for each in smaller}
