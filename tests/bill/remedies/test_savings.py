from __future__ import annotations

from itertools import groupby

from tokmill.bill.remedies.savings import (
    CHANGES_RESULT,
    COSTLY,
    of_serving,
    of_training,
    options,
)
from tokmill.settings.inference import InferenceSettings
from tokmill.settings.training import TrainingSettings


def savings(**training):
    return list(of_training(TrainingSettings(**{"sequence": 2048, **training})))


def proposed(name, **training):
    """Return the options of the savings of a name, the mildest first."""
    return [" ".join(options(each.changes)) for each in savings(**training) if each.name == name]


def test_what_needs_more_or_trains_something_else_comes_last():
    every = savings(gpus=8, micro_batch=4)
    assert [each.level for each in every] == sorted(each.level for each in every)
    levels = {
        level: {each.name for each in alike} for level, alike in groupby(every, lambda s: s.level)
    }
    assert levels[COSTLY] == {
        "tensor parallelism", "context parallelism", "expert parallelism", "pipeline parallelism",
        "activations in host RAM", "offload",
    }  # fmt: skip
    assert levels[CHANGES_RESULT] == {
        "smaller micro batch", "16-bit weights", "shorter sequences", "LoRA", "QLoRA",
    }  # fmt: skip


def test_megatron_shares_optimizer_states_its_own_way():
    assert proposed("shared optimizer states", gpus=8, framework="megatron") == [
        "--sharding distributed-optimizer"
    ]


def test_a_model_is_cut_into_no_more_than_sixteen_stages():
    assert proposed("pipeline parallelism", gpus=64)[-1] == "--pipeline-parallel 16"
    assert proposed("pipeline parallelism") == []


def test_one_gpu_shares_nothing_and_offloads_alone():
    assert proposed("shared optimizer states") == proposed("shared weights") == []
    assert proposed("offload") == ["--offload optimizer", "--offload all"]
    assert proposed("offload", gpus=8)[-1] == "--sharding zero-3 --offload all"


def test_a_server_rounds_only_to_fewer_bits():
    settings = InferenceSettings(kv_type="int8", context=512)
    names = {}
    for each in of_serving(settings):
        names.setdefault(each.name, []).append(" ".join(options(each.changes)))
    assert names["rounded KV cache"] == ["--kv-type int4"]
    assert names["rounded weights"] == ["--weight-type int8", "--weight-type int4"]
