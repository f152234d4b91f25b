"""The moments of a step: what is alive at each, beside what the layers keep."""

from __future__ import annotations

from typing import Any

from tokmill.bill.models.load import load_model
from tokmill.bill.training_bill import TrainingBill, training_bill
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings

MODEL = load_model(
    ModelSettings(family="llama", layers=2, hidden=64, heads=4, ffn=128, vocabulary=100)
)


def amounts(**settings: Any) -> dict[str, dict[str, int]]:
    """Return the bytes of each line, by the moment."""
    bill = training_bill(MODEL, TrainingSettings(**{"sequence": 64, **settings}))
    return {
        moment.title.removeprefix("GPU memory, training: "): {
            line.name: line.n_bytes for line in moment.lines
        }
        for moment in bill.moments
    }


def test_the_forward_pass_of_an_evaluation_makes_full_logits_with_a_fused_loss_too() -> None:
    full, fused = (
        amounts(metric_batches=3, loss=loss)["evaluation, forward"] for loss in ("full", "fused")
    )
    assert full == fused


def test_zero_3_holds_its_gradients_all_the_time() -> None:
    for settings in ({"sharding": "zero-3"}, {"sharding": "zero-3", "metric_batches": 3}):
        held = amounts(gpus=8, **settings)
        assert {lines["gradients"] for lines in held.values()} == {2 * MODEL.parameters // 8}
    assert "gradients" not in amounts(gpus=8, sharding="zero-2")["start of backward"]


QKVO = {"adapter_rank": 16, "adapter_targets": "q_proj,k_proj,v_proj,o_proj"}
RECOMPUTED = {"checkpointing": "full", "loss": "fused", "adapter": "lora", **QKVO}


def test_fsdp1_holds_the_inputs_of_frozen_layers_unless_checkpointing_is_not_reentrant() -> None:
    """Llama-3-8B on 4 A100, 16 x 4,096 tokens: 53.44 GiB measured (fms-acceleration)."""
    model = load_model(ModelSettings(name="llama-3-8b"))

    def bill(**settings: Any) -> TrainingBill:
        common = {**RECOMPUTED, "gpus": 4, "micro_batch": 16, "sequence": 4096}
        return training_bill(model, TrainingSettings(**{**common, **settings}))

    old, new, either, fsdp2 = (
        bill(**settings)
        for settings in (
            {"sharding": "fsdp", "transformers": "4"},
            {"sharding": "fsdp", "transformers": "5"},
            {"sharding": "fsdp"},
            {"sharding": "fsdp2", "transformers": "4"},
        )
    )
    assert abs(old.allocated_bytes / (53.44 * 2**30) - 1) < 0.02
    layer = 2 * (8_030_261_248 - 2 * 128_256 * 4096) / 32  # which new has gathered, and old has not
    per_token = (old.allocated_bytes - new.allocated_bytes + layer) / (16 * 4096)
    assert abs(per_token / ((32 - 2) * 2 * 4096) - 1) < 0.01
    assert not any("held by FSDP1" in line.name for line in fsdp2.peak.lines)
    assert either == old
    trained = bill(sharding="fsdp", adapter="none", transformers="4")
    assert not any("held by FSDP1" in line.name for each in trained.moments for line in each.lines)


def test_only_layers_that_compute_or_come_next_are_gathered() -> None:
    """So Llama-3-8B with LoRA is met within 0.2% on 2 and 4 GPUs (fms-acceleration)."""
    model = load_model(ModelSettings(name="llama-3-8b"))
    for gpus, micro_batch, loss, gibibytes in (
        (2, 4, "fused", 21.78), (2, 16, "fused", 57.23), (4, 4, "fused", 17.99),
        (2, 4, "kernel", 29.44), (4, 8, "kernel", 45.56),
    ):  # fmt: skip
        how = {
            **RECOMPUTED, "gpus": gpus, "micro_batch": micro_batch, "sequence": 4096, "loss": loss
        }  # fmt: skip
        found = training_bill(model, TrainingSettings(**how, sharding="fsdp", transformers="4"))  # type: ignore[arg-type]
        assert abs(found.allocated_bytes / 2**30 / gibibytes - 1) < 0.002
    held = {
        name: lines.get("gathered layers (FSDP)")
        for name, lines in amounts(gpus=2, sharding="fsdp").items()
    }
    first, last = held["backward of the first layer"], held["backward of the last layer"]
    assert first is not None
    assert last is not None
    assert last - first == first - (held["start of backward"] or 0) > 0
