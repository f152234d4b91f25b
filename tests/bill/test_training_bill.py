"""The bill of a training step: peaks that were measured once, and what follows from the order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tokmill.bill.formula import Bill, evaluate
from tokmill.bill.models.load import load_model
from tokmill.bill.models.model import Model
from tokmill.bill.training_bill import training_bill
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings

MIB = 1 << 20
GIB = 1 << 30


def named(name: str) -> Model:
    """Give a built-in model without dropout, as the anchors were measured."""
    return replace(load_model(ModelSettings(name=name)), dropout=0.0, attention_dropout=0.0)


def moment(name: str, model: Model, **settings: Any) -> Bill:
    moments = training_bill(model, TrainingSettings(**settings)).moments
    return next(bill for bill in moments if bill.title.endswith(name))


def amount(bill: Bill, start: str) -> int:
    return sum(line.n_bytes for line in bill.lines if line.name.startswith(start))


ANCHORS = [
    ("gpt2", "fp32", 1, 16, {}, 2373.5),
    ("gpt2", "fp32", 1, 16, {"optimizer_step": "for-loop"}, 2193.3),
    ("gpt2", "fp32", 1, 16, {"optimizer": "sgd"}, 1243.9),
    ("gpt2", "fp32", 1, 16, {"optimizer": "momentum"}, 1718.6),
    ("gpt2", "fp32", 1, 1024, {}, 3075.8),
    ("gpt2", "fp32", 8, 1024, {}, 14637.8),
    ("gpt2", "fp32", 8, 1024, {"checkpointing": "full"}, 6479.8),
    ("gpt2", "fp32", 8, 1024, {"attention": "eager"}, 18857.3),
    ("gpt2", "fp32", 8, 1024, {"attention": "eager", "checkpointing": "full"}, 6503.8),
    ("gpt2", "pure-16", 8, 1024, {}, 9677.0),
    ("tinyllama-1.1b", "pure-16", 4, 2048, {}, 26342.5),
    (
        "tinyllama-1.1b", "pure-16", 4, 2048,
        {"checkpointing": "full", "optimizer_step": "for-loop"}, 10143.1,
    ),
    ("tinyllama-1.1b", "amp", 4, 2048, {}, 38162.5),
    ("llama-3-8b", "pure-16", 1, 8192, {}, 115611.6),
    (
        "llama-3-8b", "pure-16", 1, 8192,
        {"checkpointing": "full", "optimizer_step": "for-loop"}, 63270.1,
    ),
]  # fmt: skip
"""Peaks in MiB by MemTracker on fake tensors, with the causal mask that this makes."""


@pytest.mark.parametrize(("name", "precision", "batch", "sequence", "settings", "mib"), ANCHORS)
def test_measured_peaks_are_met(
    name: str, precision: str, batch: int, sequence: int, settings: dict[str, Any], mib: float
) -> None:
    settings = {"attention": "sdpa-mask"} | settings
    training = TrainingSettings(
        precision=precision, micro_batch=batch, sequence=sequence, **settings
    )
    found = training_bill(named(name), training).allocated_bytes / MIB
    assert found == pytest.approx(mib, rel=0.0001)


def test_llama_3_8b_keeps_56_gib_at_8192_tokens_and_takes_8_for_the_loss() -> None:
    bill = moment(
        "start of backward", named("llama-3-8b"), precision="pure-16", sequence=8192,
        attention="sdpa-mask",
    )  # fmt: skip
    masks = 2 * 8192**2 * 32
    kept = amount(bill, "activations") + amount(bill, "loss:") - masks
    assert kept / GIB == pytest.approx(56.2, abs=0.05)
    assert amount(bill, "loss backward") / GIB == pytest.approx(7.8, abs=0.05)


@pytest.mark.parametrize(
    ("name", "settings", "gib"),
    [
        ("llama-3.1-8b", {"gpus": 8, "micro_batch": 2, "checkpointing": "selective"}, 82.4),
        ("llama-3.1-8b", {"gpus": 128, "micro_batch": 2, "checkpointing": "selective"}, 67.0),
        (
            "llama-3.1-70b",
            {
                "gpus": 256, "tensor_parallel": 8, "sequence_parallel": True, "micro_batch": 16,
                "checkpointing": "full",
            },
            71.9,
        ),
    ],
)  # fmt: skip
def test_torchtitans_published_memory_is_met_within_15_percent(
    name: str, settings: dict[str, Any], gib: float
) -> None:
    training = TrainingSettings(
        precision="amp", sharding="fsdp2", sequence=8192, optimizer_step="fused", **settings
    )
    assert training_bill(named(name), training).peak.n_bytes / GIB == pytest.approx(gib, rel=0.15)


def test_flash_attention_is_linear_in_the_sequence() -> None:
    kept = [
        amount(
            moment("start of backward", named("llama-3-8b"), precision="pure-16", sequence=n),
            "activations",
        )
        for n in (1024, 2048, 4096)
    ]
    assert kept[2] - kept[1] == 2 * (kept[1] - kept[0])


def test_every_line_is_what_its_formula_gives() -> None:
    for bill in training_bill(named("llama-3-8b"), TrainingSettings(adapter="lora")).moments:
        assert bill.n_bytes == sum(round(evaluate(x.formula, x.symbols)) for x in bill.lines)


def test_gradients_come_in_backward_unless_they_are_accumulated() -> None:
    def at_start(accumulation: int) -> int:
        settings = {"precision": "fp32", "sequence": 16, "accumulation": accumulation}
        return amount(moment("start of backward", named("gpt2"), **settings), "gradients")

    assert (at_start(1), at_start(2)) == (0, 4 * named("gpt2").parameters)


def test_a_tied_embedding_sums_two_gradients_at_the_end() -> None:
    end = moment("end of backward", named("gpt2"), precision="fp32", sequence=16)
    table = 4 * 50257 * 768
    assert amount(end, "gradients of the tied") == 3 * table
    assert amount(end, "gradients") - 3 * table == 4 * named("gpt2").parameters - table


def test_a_tied_embedding_that_is_narrower_than_the_layers_counts_by_its_own_width() -> None:
    model = named("opt-350m")
    end = moment("end of backward", model, precision="fp32", sequence=16)
    table = 4 * 50272 * 512
    assert amount(end, "gradients of the tied") == 3 * table
    assert amount(end, "gradients") - 3 * table == 4 * model.parameters - table


def test_the_first_pipeline_stage_holds_most_micro_batches_and_no_loss() -> None:
    settings = {
        "precision": "pure-16", "sequence": 2048, "gpus": 4, "pipeline_parallel": 4,
        "accumulation": 8,
    }  # fmt: skip
    bill = training_bill(named("llama-3-8b"), TrainingSettings(**settings))
    assert not any(title.endswith("of forward") for title in (b.title for b in bill.moments))
    kept = next(x for x in bill.peak.lines if x.name == "activations: attention")
    assert kept.symbols["layers_kept"] == 4 * 8 - 1


def test_the_first_the_last_and_the_fullest_stage_are_billed_with_their_own_states() -> None:
    settings = {"gpus": 4, "pipeline_parallel": 4, "accumulation": 8, "sequence": 2048}
    bill = training_bill(named("llama-3-8b"), TrainingSettings(framework="megatron", **settings))
    assert [stage.number for stage in bill.stages] == [0, 3]
    first, last = bill.stages
    assert bill.fullest is first
    assert (bill.peak, bill.moments) == (first.peak, first.moments)
    assert any(moment.title.endswith("end of forward") for moment in last.moments)
    # The final norm stands on the last stage; embedding and head are equally large.
    weights = [amount(stage.peak, "weights") for stage in bill.stages]
    assert weights[1] - weights[0] == 2 * 4096


def test_experts_in_later_stages_only_make_another_stage_than_the_first_the_fullest() -> None:
    settings = {"gpus": 16, "pipeline_parallel": 16, "accumulation": 32, "framework": "hf"}
    bill = training_bill(named("deepseek-v3"), TrainingSettings(precision="pure-16", **settings))
    assert [stage.number for stage in bill.stages] == [0, 1, 15]
    assert bill.fullest.number == 1


def test_interleaved_stages_hold_more() -> None:
    def kept(chunks: int) -> float:
        settings = {
            "precision": "pure-16", "sequence": 2048, "gpus": 4, "pipeline_parallel": 4,
            "accumulation": 8, "virtual_stages": chunks, "framework": "megatron",
        }  # fmt: skip
        peak = training_bill(named("llama-3-8b"), TrainingSettings(**settings)).peak
        line = next(x for x in peak.lines if x.name == "activations: attention")
        return line.symbols["layers_kept"] + 1

    assert (kept(1), kept(2)) == (32, 32 * (1 + 3 / (4 * 2)))


def test_fsdps_reduced_gradients_are_there_in_backward_only() -> None:
    settings = {"precision": "amp", "sharding": "fsdp", "gpus": 8, "sequence": 16}
    moments = training_bill(named("llama-3-8b"), TrainingSettings(**settings)).moments
    there = [
        bill.title for bill in moments if amount(bill, "fp32 gradients of one layer (FSDP)") > 0
    ]
    assert [title.partition(": ")[2] for title in there] == [
        "backward of the last layer", "backward of the first layer", "end of backward",
    ]  # fmt: skip


def test_a_split_sequence_divides_the_inputs_of_checkpointed_layers() -> None:
    def inputs(split: bool) -> int:
        settings = {
            "precision": "pure-16", "sequence": 64, "checkpointing": "full", "gpus": 4,
            "tensor_parallel": 4, "sequence_parallel": split,
        }  # fmt: skip
        return amount(
            moment("start of backward", named("llama-3-8b"), **settings), "activations: inputs"
        )

    assert inputs(split=False) == 4 * inputs(split=True) == 2 * 64 * 4096 * 32


def test_megatron_holds_no_mask_for_checkpointed_layers() -> None:
    settings = {"checkpointing": "full", "attention": "eager", "sequence": 1024}
    model = named("gpt2")
    held = {
        framework: amount(
            moment("end of forward", model, framework=framework, **settings), "activations: mask"
        )
        for framework in ("hf", "megatron")
    }
    assert held == {"hf": 4 * 1024 * 1024, "megatron": 0}


def test_gathering_a_frozen_base_does_not_widen_what_lies_between_the_layers() -> None:
    settings: dict[str, Any] = {
        "precision": "fp32", "adapter": "lora", "weights": "int8", "gpus": 8, "sequence": 1024,
    }  # fmt: skip
    kept = [
        amount(moment("end of forward", named("llama-3.2-1b"), **settings, sharding=how), "activ")
        for how in ("zero-2", "zero-3")
    ]
    assert kept[0] == kept[1]


@pytest.mark.parametrize(("name", "in_16_bit"), [("bert-base-uncased", True), ("gpt2", False)])
def test_the_loss_of_bert_has_the_type_of_its_logits(name: str, in_16_bit: bool) -> None:
    settings = {"sequence": 128, "precision": "pure-16"}
    start = training_bill(named(name), TrainingSettings(**settings)).moments[1]
    loss = next(line for line in start.lines if line.name.startswith("loss backward"))
    assert loss.symbols["q_loss"] == (2 if in_16_bit else 4)
    amp = training_bill(named(name), TrainingSettings(**settings | {"precision": "amp"})).moments[1]
    loss = next(line for line in amp.lines if line.name.startswith("loss backward"))
    assert loss.symbols["q_loss"] == 4
