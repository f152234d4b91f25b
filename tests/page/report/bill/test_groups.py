"""Each line of a bill has a group, and no amount is lost."""

from __future__ import annotations

import pytest

import tokmill
from tokmill.bill.states.optimizers import STATES
from tokmill.page.report.bill.groups import (
    LOADING_GROUPS,
    SERVING_GROUPS,
    TRAINING_GROUPS,
    grouped,
    loading_group,
    serving_group,
    training_group,
)


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("weights", "weights"),
        ("weights of the reference model", "weights"),
        ("gradients", "gradients"),
        ("gradient of the tied head, kept until the embedding's", "gradients"),
        ("gradients of the logits", "logits and loss"),
        ("gradients inside the layer", "activations"),
        ("gradient buckets (DDP)", "temporary and buffers"),
        ("activations: inputs of checkpointed layers", "activations"),
        ("loss backward: two tensors the size of the logits", "logits and loss"),
        ("fused loss: a chunk's logits, gradients of the hidden states", "logits and loss"),
        ("16-bit casts of weights (autocast)", "temporary and buffers"),
        ("gathered modules (ZeRO-3)", "temporary and buffers"),
        ("CUDA context and libraries", "CUDA and its libraries"),
        ("fragmentation", "fragmentation"),
    ],
)
def test_lines_of_training_by_name(name, group):
    assert training_group(name) == group


def test_all_states_of_optimizers_are_one_group():
    assert {training_group(name) for name in STATES} == {"optimizer states"}


@pytest.mark.parametrize(
    "settings",
    [
        {}, {"precision": "mixed-20"}, {"checkpointing": "full"}, {"optimizer": "adamw-8bit"},
        {"gpus": 8, "sharding": "zero-3"}, {"adapter": "qlora"}, {"loss": "fused"},
        {"framework": "megatron"}, {"reference_model": True}, {"attention": "eager"},
    ],
)  # fmt: skip
def test_groups_add_up_to_the_bill(settings):
    peak = tokmill.bill.training("gpt2", micro_batch=4, **settings).peak
    found = grouped(peak.lines, TRAINING_GROUPS, training_group)
    assert sum(found) == peak.n_bytes
    assert found[0] > 0


def test_groups_of_serving_add_up_to_the_bill():
    bill = tokmill.bill.inference("llama-3.2-1b", context="32k", weight_type="nf4")
    found = dict(
        zip(SERVING_GROUPS, grouped(bill.lines, SERVING_GROUPS, serving_group), strict=True)
    )
    assert sum(found.values()) == bill.n_bytes
    lines = {line.name: line.n_bytes for line in bill.lines}
    assert found["KV cache"] == lines["KV cache"] > 0
    assert found["activations of the prompt"] == (
        lines["activations of a layer (prompt)"] + lines["one dequantized matrix"]
    )


def test_groups_of_loading_add_up_to_the_bill():
    bill = tokmill.bill.host(
        tokens="1B", loading="lists", loader_workers=4, start_method="spawn", host_ram="64GiB"
    ).peak
    found = dict(
        zip(LOADING_GROUPS, grouped(bill.lines, LOADING_GROUPS, loading_group), strict=True)
    )
    assert sum(found.values()) == bill.n_bytes
    lines = {line.name: line.n_bytes for line in bill.lines}
    held = ("token ids in lists", "one shard beside its int64 copy or list")
    assert found["dataset"] == sum(lines.get(name, 0) for name in held) > 0
    assert found["copies in workers"] > 0
    assert found["processes"] == sum(lines[n] for n in lines if n.startswith(("proc", "spawn")))
