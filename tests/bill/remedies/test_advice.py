"""Advice asks a bill; these tests give it a small one, whose arithmetic fits a line."""

import pytest

from tokmill.bill.formula import Bill, Line
from tokmill.bill.gpus import Gpu, find_gpu
from tokmill.bill.host_ram.machine import BARELY
from tokmill.bill.models.load import load_model
from tokmill.bill.models.model import Attention, Model
from tokmill.bill.remedies.advice import advise, built_in_smaller, training_peak, verdict
from tokmill.errors import UsageError
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings


def a_model(name="tiny", layers=8, positions=4096):
    attention = Attention(heads=8, kv_heads=4, head_dim=8)
    return Model(name, "llama", layers, 64, 128, 100, positions, False, "silu", attention, ())


def peak(model, training):
    """States of 1000 a layer, activations of 1 a token; 10 % more at the most."""
    states = 1000 * model.layers
    states //= {"zero-3": training.gpus}.get(training.sharding, 1)
    states //= {"none": 1, "optimizer": 2, "all": 8}[training.offload]
    states //= {"none": 1, "lora": 10}[training.adapter]
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
    assert verdict(peak(a_model(), TrainingSettings(sequence=1024)), found.gpu) == said


def test_what_fits_needs_no_measures():
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


def test_every_measure_says_what_it_saves_alone():
    found = advice(5000, micro_batch=8, gpus=2)
    steps = {step.name: step for step in found.steps}
    assert len(steps) == 22
    zero = steps["ZeRO stage 3"]
    assert (zero.options, zero.saved_bytes, zero.peak_bytes, zero.fits) == (
        ("--sharding zero-3",), 4000, 12_192, False
    )  # fmt: skip
    assert steps["smaller micro batch"].saved_bytes == 7 * 1024
    assert steps["mixed precision"].why_not == "matrix products are in 16 bit already (amp)"


def test_with_one_gpu_nothing_is_shared_and_that_is_said():
    steps = {step.name: step for step in advice(5000).steps}
    assert "only one GPU" in steps["ZeRO stage 3"].why_not
    assert "one GPU" in steps["tensor parallelism"].why_not


def test_what_barely_fits_gets_measures_but_needs_no_plan():
    found = advice(9024 + 100)
    assert found.verdict == BARELY
    assert len(found.steps) == 22
    assert found.plan == ()


def test_a_measure_that_contradicts_the_settings_gives_the_reason():
    def contradicting(model, training):
        if training.loss == "fused":
            raise UsageError("loss: not here")
        return peak(model, training)

    found = advise(a_model(), TrainingSettings(sequence=1024), Gpu("test", 100), peak=contradicting)
    fused = next(step for step in found.steps if step.name == "fused loss")
    assert fused.why_not == "loss: not here"


def test_the_plan_is_the_cheapest_measures_that_fit_together():
    assert plan(8000 + 2 * 1024, micro_batch=8) == ["--micro-batch 2", "--accumulation 4"]


def test_the_plan_drops_what_later_measures_make_needless():
    found = advice(4000 + 1024, micro_batch=8)
    assert plan(4000 + 1024, micro_batch=8) == [
        "--micro-batch 1", "--accumulation 8", "--sharding zero-2", "--offload optimizer"
    ]  # fmt: skip
    assert [step.fits for step in found.plan] == [False, True]
    assert [step.saved_bytes for step in found.plan] == [7 * 1024, 4000]


def test_the_plan_keeps_what_is_trained_if_it_can():
    assert plan(1000 + 1024, smaller=(a_model("small", layers=1),)) == [
        "--sharding zero-3", "--offload all"
    ]  # fmt: skip


def test_a_plan_that_needs_another_model_takes_the_largest_that_fits():
    smaller = (a_model("middle", layers=4), a_model("small", layers=2), a_model("mini", layers=1))
    # 256 tokens; of a model's 1000 a layer an eighth stays on the GPU.
    assert plan(500 + 256, smaller=smaller)[-1] == "--model middle"
    assert plan(500 + 255, smaller=smaller)[-1] == "--model small"


def a_plan_by(n_bytes, memory_bytes):
    """Give the options of a plan where `n_bytes(training)` is the peak."""

    def peak(model, training):
        size = n_bytes(training)
        return Bill("peak", (Line("all", size, size, size, "x"),))

    gpu = Gpu("test", memory_bytes)
    found = advise(a_model(), TrainingSettings(), gpu, peak=peak, smaller_models=lambda model: ())
    return [option for step in found.plan for option in step.options]


def test_a_measure_may_save_nothing_before_another_moment_is_dealt_with():
    def n_bytes(training):
        step = 500 if training.optimizer_step == "fused" else 900
        loss = 400 if training.loss == "fused" else 1000
        return max(step, loss)

    assert a_plan_by(n_bytes, 600) == ["--optimizer-step fused", "--loss fused"]


def test_of_two_needless_measures_the_costlier_is_dropped():
    def n_bytes(training):
        saved = 100 * (training.optimizer_step == "fused") + 100 * (training.loss == "fused")
        return 1000 - saved - 500 * (training.checkpointing == "full")

    assert a_plan_by(n_bytes, 450) == ["--optimizer-step fused", "--checkpointing full"]


def test_measures_that_save_nothing_are_not_in_the_plan():
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
    assert len(asked) < 90


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
