"""The moments of a step: what is alive at each, beside what the layers keep."""

from __future__ import annotations

from typing import Any

import pytest

from tokmill.bill.models.load import load_model, model_from_config
from tokmill.bill.training_bill import allocated_bytes, training_bill
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings

MODEL = load_model(
    ModelSettings(family="llama", layers=2, hidden=64, heads=4, ffn=128, vocabulary=100)
)

NO_DROPOUT = {
    "hidden_dropout": 0.0, "dropout": 0.0, "attention_dropout": 0.0
}  # fmt: skip


def amounts(**settings: Any) -> dict[str, dict[str, int]]:
    """Return the bytes of each line, by the moment."""
    bill = training_bill(MODEL, TrainingSettings(**{"sequence": 64, **settings}))
    return {
        moment.title.removeprefix("GPU memory, training: "): {
            line.name: line.n_bytes for line in moment.lines
        }
        for moment in bill.moments
    }


def test_an_evaluation_is_a_moment_only_where_metrics_need_logits() -> None:
    assert not [title for title in amounts() if "evaluation" in title]
    found = amounts(metric_batches=3)
    assert list(found)[-2:] == ["evaluation, forward", "evaluation, logits joined"]


def test_an_evaluation_keeps_weights_and_optimizer_states_and_no_gradients() -> None:
    lines = amounts(metric_batches=3)["evaluation, logits joined"]
    assert {"weights", "first moment", "second moment"} < set(lines)
    assert "gradients" not in lines


def test_the_forward_pass_of_an_evaluation_makes_full_logits_with_a_fused_loss_too() -> None:
    full, fused = (
        amounts(metric_batches=3, loss=loss)["evaluation, forward"] for loss in ("full", "fused")
    )
    assert full == fused


def test_a_matrix_is_dequantized_inside_layers_alone() -> None:
    found = amounts(adapter="lora", weights="nf4")
    holding = [title for title, lines in found.items() if "a dequantized matrix" in lines]
    assert holding == [
        "backward of the last layer",
        "backward of the first layer",
        "end of backward",
    ]


def test_casts_of_frozen_weights_are_not_cached_over_recomputed_layers() -> None:
    lora = {"precision": "amp", "adapter": "lora", "weights": "fp32", "checkpointing": "full"}
    found = amounts(**lora)
    casts = "16-bit casts of weights (autocast)"
    assert found["end of forward"][casts] == found["start of backward"][casts]
    trained = amounts(precision="amp", checkpointing="full")
    assert trained["end of forward"][casts] > trained["start of backward"][casts]


def of_experts(experts: int, ffn: int) -> set[str]:
    """Return the lines and rows of a mixture's first layer in backward."""
    sizes = {"hidden": 64, "heads": 4, "ffn": ffn, "active_experts": 2, "vocabulary": 100}
    mixture = load_model(ModelSettings(family="mixtral", layers=2, experts=experts, **sizes))
    training = TrainingSettings(precision="fp32", sequence=64, checkpointing="full")
    bill = training_bill(mixture, training)
    lines = next(m for m in bill.moments if m.title.endswith("backward of the first layer")).lines
    return {part for line in lines for part in (line.name, *line.note.split("; "))}


def test_the_backward_of_experts_is_greatest_at_one_of_three_moments() -> None:
    outputs = "gradients of the experts' outputs: weighted, and of both factors"
    gates = "gradients inside the experts: product, gate and up"
    made = "gradient of a weight, just made"
    names = {outputs, gates, made}
    assert of_experts(experts=2, ffn=8) & names == {outputs}
    assert of_experts(experts=2, ffn=256) & names == {gates}
    assert of_experts(experts=64, ffn=64) & names == {made}


@pytest.mark.parametrize(
    ("values", "measured"),
    [
        ({"model_type": "llama", "intermediate_size": 1408, "num_key_value_heads": 4}, 211.10),
        ({"model_type": "gpt_neox", "intermediate_size": 1408, **NO_DROPOUT}, 176.56),
        ({"model_type": "opt", "ffn_dim": 1408, "word_embed_proj_dim": 512, **NO_DROPOUT}, 162.50),
        ({"model_type": "phi3", "intermediate_size": 1408}, 252.10),
    ],
)
def test_a_layer_in_backward_keeps_its_selected_products_once(
    values: dict[str, Any], measured: float
) -> None:
    shape = {"num_hidden_layers": 3, "hidden_size": 512, "num_attention_heads": 8}
    model = model_from_config({**shape, "vocab_size": 1000, **values})
    training = TrainingSettings(
        precision="fp32", micro_batch=2, sequence=1024, checkpointing="selective", optimizer="sgd"
    )
    peak = max(allocated_bytes(moment) for moment in training_bill(model, training).moments)
    assert peak / 2**20 == pytest.approx(measured, rel=0.005)  # torch's MemTracker


def test_zero_3_holds_its_gradients_all_the_time() -> None:
    for settings in ({"sharding": "zero-3"}, {"sharding": "zero-3", "metric_batches": 3}):
        held = amounts(gpus=8, **settings)
        assert {lines["gradients"] for lines in held.values()} == {2 * MODEL.parameters // 8}
    assert "gradients" not in amounts(gpus=8, sharding="zero-2")["start of backward"]
