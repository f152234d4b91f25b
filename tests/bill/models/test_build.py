"""The head of a model is the one that its architecture names."""

from __future__ import annotations

from typing import Any

import pytest

from tokmill.bill.models.adapters import adapter_tensors
from tokmill.bill.models.load import model_from_config
from tokmill.bill.models.model import Model
from tokmill.bill.serving.inference import inference_bill
from tokmill.bill.training_bill import training_bill
from tokmill.settings.inference import InferenceSettings
from tokmill.settings.training import TrainingSettings

D, V = 64, 1000
LLAMA = {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": D, "num_attention_heads": 4,
    "intermediate_size": 96, "vocab_size": V,
}  # fmt: skip
BODY = V * D + 2 * (4 * D * D + 3 * D * 96 + 2 * D) + D


def with_head(architecture: str, **config: Any) -> Model:
    return model_from_config({**LLAMA, "architectures": [architecture], **config})


@pytest.mark.parametrize(
    ("architecture", "config", "head"),
    [
        ("LlamaForCausalLM", {}, V * D),
        ("LlamaForCausalLM", {"tie_word_embeddings": True}, 0),
        ("LlamaModel", {}, 0),
        ("LlamaForSequenceClassification", {}, 2 * D),
        ("LlamaForSequenceClassification", {"num_labels": 7}, 7 * D),
        ("LlamaForSequenceClassification", {"id2label": {"0": "a", "1": "b", "2": "c"}}, 3 * D),
        ("LlamaForSequenceClassification", {"tie_word_embeddings": True}, 2 * D),
        ("LlamaForTokenClassification", {"num_labels": 7}, 7 * D + 7),
        ("LlamaForQuestionAnswering", {"num_labels": 7}, 2 * D + 2),
        ("LlamaOfSomeone", {}, V * D),
    ],
)
def test_the_architecture_decides_the_head(
    architecture: str, config: dict[str, Any], head: int
) -> None:
    assert with_head(architecture, **config).parameters == BODY + head


def test_tensors_of_a_model_without_a_head_have_no_prefix() -> None:
    names = {tensor.name for tensor in with_head("LlamaModel").tensors}
    assert {"embed_tokens.weight", "norm.weight", "layers.{}.self_attn.q_proj.weight"} < names


def test_the_narrow_head_of_opt_350m_reads_its_narrow_output() -> None:
    config = {
        "model_type": "opt", "num_hidden_layers": 2, "hidden_size": D, "num_attention_heads": 4,
        "ffn_dim": 96, "vocab_size": V, "word_embed_proj_dim": 5,
        "architectures": ["OPTForSequenceClassification"],
    }  # fmt: skip
    score = next(t for t in model_from_config(config).tensors if t.module == "head")
    assert score.shape == (2, 5)


def test_logits_and_loss_are_as_wide_as_the_head() -> None:
    training = TrainingSettings(precision="fp32", sequence=128)
    moments = {
        name: training_bill(with_head(name, num_labels=7), training).moments[0]
        for name in ("LlamaForSequenceClassification", "LlamaModel")
    }
    lines = {line.name: line for line in moments["LlamaForSequenceClassification"].lines}
    assert lines["logits"].n_bytes == 4 * 128 * 7
    assert not any("logits" in line.name for line in moments["LlamaModel"].lines)

    bill = inference_bill(with_head("LlamaModel"), InferenceSettings(), context=128)
    assert next(line.n_bytes for line in bill.lines if line.name == "logits") == 0


def test_a_fused_loss_of_a_model_without_a_head_takes_no_chunk() -> None:
    training = TrainingSettings(precision="fp32", sequence=128, loss="fused")
    assert training_bill(with_head("LlamaModel"), training).peak.n_bytes > 0


def test_lora_trains_the_head_of_a_classifier_too() -> None:
    training = TrainingSettings(adapter="lora", adapter_rank=2)
    language, classifier = (
        sum(tensor.count for tensor in adapter_tensors(with_head(name), training))
        for name in ("LlamaForCausalLM", "LlamaForSequenceClassification")
    )
    assert classifier == language + 2 * D
