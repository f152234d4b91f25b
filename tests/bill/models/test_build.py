"""The head of a model is the one that its architecture names."""

from __future__ import annotations

from typing import Any

from tokmill.bill.models.adapters import adapter_tensors
from tokmill.bill.models.load import model_from_config
from tokmill.bill.models.model import Model
from tokmill.settings.training import TrainingSettings

D, V = 64, 1000
LLAMA = {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": D, "num_attention_heads": 4,
    "intermediate_size": 96, "vocab_size": V,
}  # fmt: skip


def with_head(architecture: str, **config: Any) -> Model:
    return model_from_config({**LLAMA, "architectures": [architecture], **config})


def test_lora_trains_the_head_of_a_classifier_too() -> None:
    training = TrainingSettings(adapter="lora", adapter_rank=2)
    language, classifier = (
        sum(tensor.count for tensor in adapter_tensors(with_head(name), training))
        for name in ("LlamaForCausalLM", "LlamaForSequenceClassification")
    )
    assert classifier == language + 2 * D
