"""The moments of a step: what is alive at each, beside what the layers keep."""

from __future__ import annotations

from typing import Any

from tokmill.bill.models.load import load_model
from tokmill.bill.training_bill import training_bill
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
