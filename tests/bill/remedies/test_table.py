from __future__ import annotations

from tokmill.bill.models.model import Attention, Experts, Model
from tokmill.bill.remedies.case import Case, options
from tokmill.bill.remedies.table import COSTS, ON_HOST, on_gpu
from tokmill.settings.training import TrainingSettings


def a_model(name="big", layers=8, experts=None):
    attention = Attention(heads=8, kv_heads=4, head_dim=8)
    return Model(name, "llama", layers, 64, 128, 100, 4096, False, "silu", attention, (), experts)


def proposed(name, model=None, smaller=(), **training):
    """Return the options of each candidate of a remedy, the mildest first."""
    case = Case(model or a_model(), TrainingSettings(**{"sequence": 2048, **training}))
    listed = (*on_gpu(lambda model: smaller), *ON_HOST)
    remedy = next(each for each in listed if each.name == name)
    return [" ".join(options(changes)) for changes in remedy.candidates(case)]


def test_what_trains_something_else_comes_last():
    changes = [remedy.changes_result for remedy in on_gpu(lambda model: ())]
    assert changes == sorted(changes)
    assert {remedy.name for remedy in on_gpu(lambda model: ()) if remedy.changes_result} == {
        "smaller micro batch", "16-bit weights", "shorter sequences", "LoRA", "QLoRA",
        "smaller base model",
    }  # fmt: skip


def test_megatron_shares_optimizer_states_its_own_way():
    assert set(proposed("shared optimizer states", gpus=8, framework="megatron")) == {
        "--sharding distributed-optimizer"
    }


def test_a_model_is_cut_into_no_more_than_sixteen_stages():
    found = proposed("pipeline parallelism", a_model(layers=64), gpus=64)
    assert found[-1] == "--pipeline-parallel 16"


def test_experts_are_shared_where_there_are_some():
    mixture = a_model(experts=Experts(4, 2, 32, 0, (0,)))
    assert proposed("expert parallelism", mixture, gpus=8)[-1] == "--expert-parallel 4"
    assert proposed("expert parallelism", gpus=8) == []


def test_every_change_that_a_remedy_proposes_has_a_cost_in_words():
    cases = [
        Case(a_model(), TrainingSettings(sequence=2048, gpus=8, micro_batch=4, metric_batches=2)),
        Case(
            a_model(),
            TrainingSettings(
                precision="fp32", attention="eager", loading="read", pin_memory=True, gpus=8,
                loader_workers=8, start_method="spawn", framework="megatron",
            ),
        ),
    ]  # fmt: skip
    for remedy in (*on_gpu(lambda model: (a_model("small"),)), *ON_HOST):
        for case in cases:
            for changes in remedy.candidates(case):
                words = {(name, value) for name, value in changes.items()} | set(changes)
                assert words & COSTS.keys(), (remedy.name, changes)
