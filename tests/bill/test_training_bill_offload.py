"""Activations in host RAM, and the reference model of DPO."""

from __future__ import annotations

from typing import Any

import pytest

from tokmill.bill.formula import Bill, evaluate
from tokmill.bill.models.load import load_model
from tokmill.bill.training_bill import offloaded_lines, training_bill
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings

GPT2 = load_model(ModelSettings(name="gpt2"))
P, TOKENS, VOCABULARY = 124_439_808, 8 * 1024, 50_257


def moments(**settings: Any) -> dict[str, Bill]:
    training = TrainingSettings(**{"micro_batch": 8, "precision": "fp32", **settings})
    bill = training_bill(GPT2, training)
    return {moment.title.rsplit(": ")[-1]: moment for moment in bill.moments}


def amounts(bill: Bill) -> dict[str, int]:
    return {line.name: line.n_bytes for line in bill.lines}


def test_offloaded_checkpoints_leave_one_layers_input_on_the_gpu() -> None:
    kept = amounts(moments(checkpointing="full")["start of backward"])
    moved = amounts(moments(checkpointing="full", activation_offload=True)["start of backward"])
    name = "activations: inputs of checkpointed layers"
    assert kept[name] == 12 * moved[name] == 12 * TOKENS * 768 * 4


def test_offloaded_activations_leave_one_layer_on_the_gpu_and_the_loss() -> None:
    kept = amounts(moments()["start of backward"])
    moved = amounts(moments(activation_offload=True)["start of backward"])
    names = ("activations: attention", "activations: feed-forward")
    assert all(kept[name] == 12 * moved[name] for name in names)
    different = {name for name, n_bytes in kept.items() if moved[name] != n_bytes}
    assert different == {*names, "fragmentation"}


@pytest.mark.parametrize("checkpointing", ["none", "selective", "full"])
def test_the_host_gets_what_every_rank_of_a_node_moves(checkpointing: str) -> None:
    how = {"precision": "fp32", "sequence": 1024, "checkpointing": checkpointing}
    kept = amounts(moments(micro_batch=1, checkpointing=checkpointing)["start of backward"])
    training = TrainingSettings(**how, gpus=16, activation_offload=True)
    for line in offloaded_lines(GPT2, training):
        assert line.n_bytes == 8 * kept[line.name.removeprefix("offloaded ")]
        assert (
            line.high_bytes == 2 * line.n_bytes == 2 * round(evaluate(line.formula, line.symbols))
        )
    assert offloaded_lines(GPT2, TrainingSettings(**how, gpus=16)) == ()


@pytest.mark.parametrize(
    ("settings", "n_bytes"),
    [
        ({}, 4 * P),
        ({"precision": "pure-16"}, 2 * P),
        ({"gpus": 8, "sharding": "zero-2", "precision": "auto"}, 2 * P),
        ({"gpus": 8, "sharding": "zero-3", "precision": "auto"}, 2 * P // 8),
        ({"adapter": "lora"}, None),
    ],
)
def test_a_reference_model_is_a_frozen_copy_that_adapters_do_not_need(
    settings: dict[str, Any], n_bytes: int | None
) -> None:
    for moment in moments(reference_model=True, **settings).values():
        assert amounts(moment).get("weights of the reference model") == n_bytes


def beside_activations(bill: Bill) -> float:
    """Return the bytes of logits and of what is made of them, for each logit."""
    lines = amounts(bill).items()
    loss = sum(n for name, n in lines if "log" in name and "activations" not in name)
    return loss / (TOKENS * VOCABULARY)


@pytest.mark.parametrize(
    ("precision", "of_reference", "of_backward"),
    [
        ("fp32", 4 + 4, 4 + 12),
        ("amp", 4 + 2 + 4, 4 + 12),
        ("pure-16", 2 + 2 + 2 * 2 / 8, 2 + 2),  # a batch of 8: two of its sequences
    ],
)
def test_the_logits_of_both_models_of_dpo_are_there_when_the_reference_runs(
    precision: str, of_reference: float, of_backward: float
) -> None:
    found = moments(reference_model=True, precision=precision)
    assert beside_activations(found["forward of the reference model"]) == of_reference
    assert beside_activations(found["start of backward"]) == of_backward
    assert "end of forward" not in found
    assert "forward of the reference model" not in moments()
