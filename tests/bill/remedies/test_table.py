from __future__ import annotations

import pytest

from tokmill.bill.models.model import Attention, Experts, Model
from tokmill.bill.remedies.case import Case, options
from tokmill.bill.remedies.table import COSTS, ON_HOST, cost, on_gpu
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


def test_checkpointing_is_cheaper_than_offload():
    names = [remedy.name for remedy in on_gpu(lambda model: ())]
    assert names.index("activation checkpointing") < names.index("offload")


@pytest.mark.parametrize(
    ("name", "training", "expected"),
    [
        ("no logits kept for metrics", {"metric_batches": 5}, ["--metric-batches 0"]),
        ("no logits kept for metrics", {}, []),
        (
            "logits of an evaluation in host RAM",
            {"metric_batches": 5},
            ["--eval-accumulation 1", "--metric-batches 0"],
        ),
        (
            "logits of an evaluation in host RAM",
            {"metric_batches": 5, "eval_accumulation": 1},
            ["--metric-batches 0"],
        ),
        ("logits of an evaluation in host RAM", {}, []),
        ("fused optimizer step", {}, ["--optimizer-step fused"]),
        ("fused optimizer step", {"optimizer_step": "fused"}, []),
        ("mixed precision", {"precision": "fp32"}, ["--precision amp"]),
        ("mixed precision", {"precision": "mixed-16"}, []),
        ("16-bit weights", {"precision": "fp32"}, ["--precision pure-16"]),
        ("flash attention", {"attention": "eager"}, ["--attention flash"]),
        (
            "activation checkpointing", {},
            ["--checkpointing selective", "--checkpointing full"],
        ),
        ("activation checkpointing", {"checkpointing": "full"}, []),
        ("smaller micro batch", {"micro_batch": 6}, [
            "--micro-batch 4", "--micro-batch 2", "--micro-batch 1"
        ]),
        ("gradient accumulation instead of batch", {"micro_batch": 6, "accumulation": 2}, [
            "--micro-batch 2 --accumulation 6", "--micro-batch 1 --accumulation 12"
        ]),
        ("shorter sequences", {"sequence": 700}, ["--sequence 512", "--sequence 256"]),
        ("shared optimizer states", {"gpus": 4}, ["--sharding zero-1", "--sharding zero-2"]),
        ("shared optimizer states", {}, []),
        ("shared optimizer states", {"gpus": 4, "sharding": "fsdp"}, []),
        ("shared weights", {"gpus": 4, "sharding": "zero-1"}, ["--sharding zero-3"]),
        ("shared weights", {"gpus": 4, "sharding": "fsdp-grad-op"}, ["--sharding fsdp"]),
        ("activations in host RAM", {}, ["--activation-offload"]),
        ("activations in host RAM", {"activation_offload": True}, []),
        ("8-bit optimizer states", {}, ["--optimizer adamw-8bit"]),
        ("8-bit optimizer states", {"optimizer": "lion"}, []),
        (
            "offload", {},
            ["--sharding zero-2 --offload optimizer", "--sharding zero-3 --offload all"],
        ),
        ("offload", {"sharding": "fsdp"}, ["--offload all"]),
        ("offload", {"sharding": "zero-3", "offload": "all"}, []),
        ("LoRA", {}, ["--adapter lora"]),
        ("LoRA", {"adapter": "dora"}, []),
        ("QLoRA", {}, ["--adapter qlora", "--adapter qlora --weights nf4-double"]),
        ("QLoRA", {"adapter": "dora", "weights": "nf4-double"}, ["--weights nf4"]),
        (
            "tensor parallelism", {"gpus": 16},
            ["--tensor-parallel 2", "--tensor-parallel 4", "--tensor-parallel 8"],
        ),
        ("tensor parallelism", {"gpus": 16, "gpus_per_node": 2}, ["--tensor-parallel 2"]),
        ("tensor parallelism", {}, []),
        ("pipeline parallelism", {"gpus": 8, "tensor_parallel": 4}, ["--pipeline-parallel 2"]),
        ("memory-mapped dataset", {"loading": "read"}, ["--loading memmap"]),
        (
            "memory-mapped dataset",
            {"loading": "memmap", "loader_workers": 2, "start_method": "spawn"},
            ["--loading lazy"],
        ),
        ("memory-mapped dataset", {}, []),
        ("weights created once", {}, ["--initialization meta"]),
        ("no pinned memory", {"pin_memory": True}, ["--no-pin-memory"]),
        ("forked workers", {"start_method": "spawn"}, []),
        ("fewer batches ahead", {"loader_workers": 1}, ["--prefetch 1"]),
        (
            "fewer workers", {"loader_workers": 8},
            ["--loader-workers 4", "--loader-workers 1", "--loader-workers 0"],
        ),
    ],
)  # fmt: skip
def test_a_remedy_proposes_settings_the_mildest_first(name, training, expected):
    assert proposed(name, **training) == expected


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


def test_smaller_models_are_proposed_as_they_come():
    smaller = (a_model("middle"), a_model("small"))
    assert proposed("smaller base model", smaller=smaller) == ["--model middle", "--model small"]


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


def test_the_cost_of_several_changes_names_each_once():
    assert cost({"optimizer_step": "fused"}) == "nothing"
    assert cost({"micro_batch": 1, "accumulation": 8}) == "speed"
    assert cost({"sharding": "zero-3", "offload": "all"}) == (
        "weights sent for each layer, more speed, host RAM"
    )
