import pytest

from tokmill.bill.models.model import Attention, Experts, Model
from tokmill.bill.remedies.measures import Case, difference, measures, options
from tokmill.settings.training import TrainingSettings

ORDER = (
    "no logits kept for metrics", "fused optimizer step", "mixed precision", "flash attention",
    "fused loss", "smaller micro batch", "gradient accumulation instead of batch",
    "shorter context", "ZeRO stage 1", "ZeRO stage 2", "ZeRO stage 3", "8-bit optimizer states",
    "optimizer offload", "offload of weights too", "smaller base model", "LoRA", "QLoRA",
    "checkpointing", "tensor parallelism", "context parallelism", "expert parallelism",
    "pipeline parallelism",
)  # fmt: skip


def a_model(name="big", layers=8, experts=None):
    attention = Attention(heads=8, kv_heads=4, head_dim=8)
    return Model(name, "llama", layers, 64, 128, 100, 4096, False, "silu", attention, (), experts)


def a_case(model=None, **training):
    return Case(model or a_model(), TrainingSettings(**{"sequence": 2048, **training}))


def change(name, case, fits=lambda case: False, smaller=()):
    listed = measures(lambda model: smaller)
    measure = next(each for each in listed if each.name == name)
    changed = measure.change(case, fits)
    return changed if isinstance(changed, str) else options(difference(case, changed))


def test_measures_stand_in_the_order_of_what_they_cost():
    assert tuple(each.name for each in measures(lambda model: ())) == ORDER


def test_only_measures_that_train_something_else_are_marked_so():
    marked = [each.name for each in measures(lambda model: ()) if each.changes_result]
    assert marked == [
        "smaller micro batch", "shorter context", "smaller base model", "LoRA", "QLoRA"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "training", "expected"),
    [
        ("no logits kept for metrics", {"metric_batches": 5}, ("--metric-batches 0",)),
        ("fused optimizer step", {}, ("--optimizer-step fused",)),
        ("mixed precision", {"precision": "fp32"}, ("--precision amp",)),
        ("flash attention", {"attention": "eager"}, ("--attention flash",)),
        ("fused loss", {}, ("--loss fused",)),
        ("smaller micro batch", {"micro_batch": 6}, ("--micro-batch 1",)),
        (
            "gradient accumulation instead of batch",
            {"micro_batch": 6, "accumulation": 2},
            ("--micro-batch 1", "--accumulation 12"),
        ),
        ("shorter context", {}, ("--sequence 256",)),
        ("ZeRO stage 1", {"gpus": 4}, ("--sharding zero-1",)),
        ("ZeRO stage 3", {"gpus": 4, "sharding": "zero-1"}, ("--sharding zero-3",)),
        ("8-bit optimizer states", {}, ("--optimizer adamw-8bit",)),
        ("optimizer offload", {}, ("--sharding zero-2", "--offload optimizer")),
        ("offload of weights too", {"sharding": "fsdp"}, ("--offload all",)),
        ("LoRA", {}, ("--adapter lora",)),
        ("QLoRA", {}, ("--weights nf4", "--adapter lora")),
        ("QLoRA", {"adapter": "dora"}, ("--weights nf4",)),
        ("checkpointing", {}, ("--checkpointing full",)),
        ("tensor parallelism", {"gpus": 16}, ("--tensor-parallel 8",)),
        ("context parallelism", {"gpus": 4}, ("--context-parallel 4",)),
        ("pipeline parallelism", {"gpus": 8, "tensor_parallel": 4}, ("--pipeline-parallel 2",)),
    ],
)
def test_a_measure_is_the_settings_to_change(name, training, expected):
    assert change(name, a_case(**training)) == expected


@pytest.mark.parametrize(
    ("name", "training", "why"),
    [
        ("no logits kept for metrics", {}, "none are kept"),
        (
            "fused optimizer step",
            {"optimizer_step": "fused"},
            "the optimizer step is fused already",
        ),
        ("mixed precision", {}, "matrix products are in 16 bit already (amp)"),
        ("flash attention", {}, "in use"),
        ("smaller micro batch", {}, "the micro batch is 1"),
        ("shorter context", {"sequence": 256}, "256 tokens are short already"),
        ("ZeRO stage 1", {}, "there is only one GPU"),
        ("ZeRO stage 2", {"gpus": 2, "sharding": "fsdp"}, "in use (fsdp)"),
        ("ZeRO stage 2", {"gpus": 2, "sharding": "zero-2"}, "in use (zero-2)"),
        ("8-bit optimizer states", {"optimizer": "lion"}, "only for Adam; the optimizer is lion"),
        ("optimizer offload", {"sharding": "zero-3", "offload": "all"}, "in use (all)"),
        ("smaller base model", {}, "no smaller llama is built in"),
        ("LoRA", {"adapter": "lora"}, "in use (lora)"),
        ("checkpointing", {"checkpointing": "full"}, "in use (full)"),
        ("tensor parallelism", {}, "there is only one GPU; set --gpus"),
        ("expert parallelism", {"gpus": 4}, "none of the 4 GPUs is left to share it"),
    ],
)
def test_a_measure_that_does_not_apply_says_why(name, training, why):
    assert change(name, a_case(**training)) == why


@pytest.mark.parametrize(
    ("name", "setting", "training", "enough", "expected"),
    [
        ("smaller micro batch", "micro_batch", {"micro_batch": 16}, 4, "--micro-batch 4"),
        ("shorter context", "sequence", {}, 1024, "--sequence 1024"),
    ],
)
def test_a_measure_goes_no_further_than_it_must(name, setting, training, enough, expected):
    def fits(case):
        return getattr(case.training, setting) <= enough

    assert change(name, a_case(**training), fits) == (expected,)


def test_accumulation_keeps_the_batch_exactly():
    def fits(case):
        return case.training.micro_batch <= 4  # which does not divide 6

    assert change("gradient accumulation instead of batch", a_case(micro_batch=6), fits) == (
        "--micro-batch 2", "--accumulation 3"
    )  # fmt: skip


def test_a_layer_is_shared_inside_a_machine_only():
    case = a_case(gpus=16, gpus_per_node=4)
    assert change("tensor parallelism", case) == ("--tensor-parallel 4",)


def test_parallelism_goes_no_further_than_it_must():
    def fits(case):
        return case.training.tensor_parallel >= 2

    assert change("tensor parallelism", a_case(gpus=8), fits) == ("--tensor-parallel 2",)


def test_parallelism_that_contradicts_the_model_is_not_advised():
    three_layers = a_case(a_model(layers=3), gpus=8)
    assert change("pipeline parallelism", three_layers) == ("--pipeline-parallel 2",)
    zero = change("pipeline parallelism", a_case(gpus=8, sharding="zero-3"))
    assert zero.startswith("sharding: zero-3 does not work with pipeline stages")


def test_a_model_is_cut_into_no_more_than_sixteen_stages():
    assert change("pipeline parallelism", a_case(a_model(layers=64), gpus=64)) == (
        "--pipeline-parallel 16",
    )


def test_experts_are_shared_where_there_are_some():
    mixture = a_model(experts=Experts(4, 2, 32, 0, (0,)))
    assert change("expert parallelism", a_case(mixture, gpus=8)) == ("--expert-parallel 4",)
    assert change("expert parallelism", a_case(mixture, gpus=2)) == ("--expert-parallel 2",)


def test_the_largest_smaller_model_that_fits_is_chosen():
    smaller = (a_model("middle"), a_model("small"), a_model("tiny"))

    def fits(case):
        return case.model.name in ("small", "tiny")

    assert change("smaller base model", a_case(), fits, smaller) == ("--model small",)


def test_a_flag_is_an_option_without_a_value():
    case = a_case(gpus=2, tensor_parallel=2)
    changed = difference(case, case.having(sequence_parallel=True))
    assert options(changed) == ("--sequence-parallel",)
