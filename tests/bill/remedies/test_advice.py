"""Advice asks a bill; these tests give it a small one, whose arithmetic fits a line."""

import pytest

from tokmill.bill.formula import Bill, Line
from tokmill.bill.gpus import Gpu, find_gpu
from tokmill.bill.models.load import load_model
from tokmill.bill.models.model import Attention, Model
from tokmill.bill.remedies.advice import advise, built_in_smaller, gpu_verdict, training_peak
from tokmill.bill.verdict import BARELY, DOES_NOT_FIT
from tokmill.errors import UsageError
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


def test_what_fits_needs_no_remedies():
    found = advice(20_000)
    assert (found.steps, found.plan) == ((), ())


@pytest.mark.parametrize(
    ("memory_bytes", "micro_batch"), [(8000 + 1023, 0), (8000 + 1024, 1), (8000 + 7 * 1024 + 5, 7)]
)
def test_the_largest_micro_batch_is_the_last_that_fits(memory_bytes, micro_batch):
    assert advice(memory_bytes).largest_micro_batch == micro_batch


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


def test_every_number_of_steps_up_to_the_positions_is_tried():
    assert advice(99_000, a_model(positions=3 * 64)).largest_sequence == 3 * 64


def test_a_sequence_that_is_not_said_is_what_the_bill_takes():
    assert advice(20_000, sequence=0).free_bytes == 20_000 - 8000 - 2048


def test_positions_that_are_no_round_number_are_reached():
    assert advice(99_000, a_model(positions=1000)).largest_sequence == 1000


def test_a_sequence_is_a_multiple_of_the_gpus_that_share_it():
    found = advice(8000 + 1100, gpus=3, context_parallel=3, sequence=192)
    assert found.largest_sequence == 960  # 5 x 3 x 64


def test_every_remedy_is_billed_alone_and_shown_if_it_needs_less():
    found = advice(5000, micro_batch=8, gpus=2)
    steps = {step.name: step for step in found.steps}
    assert list(steps) == [
        "activation checkpointing", "gradient accumulation instead of batch", "shared weights",
        "offload", "smaller micro batch", "shorter sequences", "LoRA", "QLoRA",
    ]  # fmt: skip
    zero = steps["shared weights"]
    assert (zero.options, zero.saved_bytes, zero.peak_bytes, zero.fits, zero.verdict) == (
        ("--sharding zero-3",), 4000, 12_192, False, DOES_NOT_FIT
    )  # fmt: skip
    assert steps["smaller micro batch"].saved_bytes == 7 * 1024


def test_a_remedy_goes_no_further_than_it_must():
    steps = {step.name: step for step in advice(8000 + 4096, micro_batch=16).steps}
    assert steps["smaller micro batch"].options == ("--micro-batch 4",)
    assert steps["gradient accumulation instead of batch"].options == (
        "--micro-batch 4", "--accumulation 4"
    )  # fmt: skip


def test_a_remedy_that_would_need_more_is_not_offered():
    def n_bytes(training):
        more = 300 * (training.precision == "pure-16") + 900 * (training.sharding == "zero-2")
        return 1000 + more - 100 * (training.loss == "fused")

    assert [step.name for step in advice_by(n_bytes, 500).steps] == ["fused loss"]


def test_a_remedy_that_contradicts_the_settings_is_not_offered():
    def contradicting(model, training):
        if training.loss == "fused":
            raise UsageError("loss: not here")
        return peak(model, training)

    found = advise(a_model(), TrainingSettings(sequence=1024), Gpu("test", 100), peak=contradicting)
    assert "fused loss" not in [step.name for step in found.steps]


def test_what_fits_only_by_the_estimate_gets_a_plan_for_the_upper_bound():
    found = advice(9024 + 100)
    assert found.verdict == BARELY
    assert [step.options for step in found.plan] == [("--checkpointing full",)]
    assert found.plan[-1].verdict == "fits"


def test_what_does_not_fit_gets_the_cheapest_plan_whose_estimate_fits():
    found = advice(8000 + 256 + 10)
    assert [step.options for step in found.plan] == [("--checkpointing full",)]
    assert found.plan[-1].verdict == BARELY


def test_the_plan_is_the_cheapest_remedies_that_fit_together():
    assert plan(8000 + 2048, micro_batch=8) == ["--checkpointing full"]
    assert plan(9 * 1024, micro_batch=8, checkpointing="full") == [
        "--micro-batch 4", "--accumulation 2"
    ]  # fmt: skip


def test_the_plan_weakens_and_drops_what_later_remedies_make_needless():
    found = advice(4000 + 1024, micro_batch=8)
    assert plan(4000 + 1024, micro_batch=8) == [
        "--checkpointing full", "--micro-batch 4", "--accumulation 2", "--sharding zero-2",
        "--offload optimizer",
    ]  # fmt: skip
    assert [step.fits for step in found.plan] == [False, False, True]


def test_the_plan_keeps_what_is_trained_if_it_can():
    found = plan(1000 + 1024, smaller=(a_model("small", layers=1),))
    assert found == ["--sharding zero-3", "--offload all"]


def test_a_plan_that_needs_another_model_takes_the_largest_that_fits():
    smaller = (a_model("middle", layers=4), a_model("small", layers=2), a_model("mini", layers=1))
    found = advice(90, smaller=smaller)
    assert found.plan[-1].options == ("--model small",)
    assert found.plan[-1].peak_bytes <= 90


def advice_by(n_bytes, memory_bytes):
    """Return the advice where `n_bytes(training)` is the peak."""

    def peak(model, training):
        size = n_bytes(training)
        return Bill("peak", (Line("all", size, size, size, "x"),))

    gpu = Gpu("test", memory_bytes)
    return advise(a_model(), TrainingSettings(), gpu, peak=peak, smaller_models=lambda model: ())


def a_plan_by(n_bytes, memory_bytes):
    return [each for step in advice_by(n_bytes, memory_bytes).plan for each in step.options]


def test_a_remedy_may_save_nothing_before_another_moment_is_dealt_with():
    def n_bytes(training):
        step = 500 if training.optimizer_step == "fused" else 900
        loss = 400 if training.loss == "fused" else 1000
        return max(step, loss)

    assert a_plan_by(n_bytes, 600) == ["--optimizer-step fused", "--loss fused"]


def test_of_two_needless_remedies_the_costlier_is_dropped():
    def n_bytes(training):
        saved = 100 * (training.optimizer_step == "fused") + 100 * (training.loss == "fused")
        return 1000 - saved - 500 * (training.checkpointing == "full")

    assert a_plan_by(n_bytes, 450) == ["--optimizer-step fused", "--checkpointing full"]


def test_offload_is_not_planned_where_only_activations_are_short():
    def n_bytes(training):
        states = 500 if training.offload == "none" else 100
        return states + (200 if training.checkpointing == "full" else 800)

    assert a_plan_by(n_bytes, 900) == ["--checkpointing full"]


def test_remedies_that_save_nothing_are_not_in_the_plan():
    assert "--loss fused" not in plan(1000 + 1024)


def test_there_is_no_plan_where_nothing_helps():
    found = advice(10, smaller=())
    assert found.plan == ()
    assert any(step.saved_bytes > 0 for step in found.steps)


def test_built_in_models_of_the_family_come_largest_first():
    model = load_model(ModelSettings(name="qwen2.5-7b"))
    smaller = built_in_smaller(model)
    sizes = [each.parameters for each in smaller]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] < model.parameters
    assert {each.family for each in smaller} == {"qwen2"}
    assert "qwen2.5-0.5b" in {each.name for each in smaller}


def test_advice_asks_few_bills():
    asked = []

    def counted(model, training):
        asked.append((model.name, training))
        return peak(model, training)

    training = TrainingSettings(gpus=8, micro_batch=16, sequence=2048)
    smaller = (a_model("small", layers=4), a_model("mini", layers=1))
    gpu = Gpu("test", 3000)
    advise(a_model(), training, gpu, peak=counted, smaller_models=lambda model: smaller)
    assert len(asked) == len(set(asked)) + 1  # the case itself, for its verdict
    assert len(asked) < 200


def test_the_plan_of_a_real_bill_fits():
    model, gpu = load_model(ModelSettings(name="llama-3-8b")), find_gpu("4090")
    found = advise(model, TrainingSettings(), gpu)
    assert found.verdict == "does not fit"
    assert found.plan[-1].peak_bytes <= gpu.memory_bytes
    before = training_peak(model, TrainingSettings())
    assert gpu.memory_bytes < before.n_bytes == gpu.memory_bytes - found.free_bytes
    assert before.n_bytes - sum(step.saved_bytes for step in found.plan) == (
        found.plan[-1].peak_bytes
    )
