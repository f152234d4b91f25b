"""Bytes between the layers and in products, by precision, sharding and adapter."""

from __future__ import annotations

import pytest

from tokmill.bill.activations.situation import situation
from tokmill.bill.models.load import load_model
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings

LLAMA = load_model(
    ModelSettings(family="llama", layers=2, hidden=64, heads=4, ffn=128, vocabulary=100)
)


@pytest.mark.parametrize(
    ("settings", "residual", "product", "adapter"),
    [
        ({"precision": "fp32"}, 4, 4, 0),
        ({"precision": "amp"}, 4, 2, 0),
        ({"precision": "pure-16"}, 2, 2, 0),
        ({"precision": "mixed-18"}, 2, 2, 0),
        ({"precision": "amp", "sharding": "fsdp"}, 2, 2, 0),
        ({"precision": "fp32", "adapter": "lora"}, 4, 4, 0),
        ({"precision": "pure-16", "adapter": "lora"}, 2, 2, 4),
        ({"precision": "amp", "adapter": "lora"}, 2, 2, 2),
        ({"precision": "amp", "adapter": "lora", "weights": "fp32"}, 4, 2, 2),
        ({"precision": "amp", "adapter": "lora", "weights": "nf4"}, 2, 2, 0),
        ({"precision": "pure-16", "adapter": "lora", "weights": "nf4"}, 2, 2, 4),
    ],
)
def test_types_follow_precision_and_base(
    settings: dict[str, str], residual: int, product: int, adapter: int
) -> None:
    at = situation(LLAMA, TrainingSettings(**settings))  # type: ignore[arg-type]
    assert (at.residual, at.product, at.adapter) == (residual, product, adapter)


def falcon(**numbers: int) -> str:
    """Give which norms a Falcon has, as its style says it."""
    sizes = {"layers": 2, "hidden": 64, "heads": 4, "vocabulary": 100} | numbers
    style = situation(load_model(ModelSettings(family="falcon", **sizes)), TrainingSettings()).style
    return f"{style.one_norm} {style.parallel} {style.fused}"


def test_falcon_with_one_norm_feeds_attention_and_feed_forward_by_it() -> None:
    assert falcon() == "True True value"
