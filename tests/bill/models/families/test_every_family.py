"""Every family has all that the bills need: counts, training, adapters, inference."""

from __future__ import annotations

import pytest

from tokmill.bill.models.families import KNOWN
from tokmill.bill.models.load import model_from_config
from tokmill.bill.models.model import Model
from tokmill.bill.serving.inference import inference_bill
from tokmill.bill.training_bill import training_bill
from tokmill.settings.inference import InferenceSettings
from tokmill.settings.training import TrainingSettings

SMALLEST = {
    "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 96, "vocab_size": 100, "num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "head_dim": 16, "max_position_embeddings": 128,
}  # fmt: skip


def smallest(name: str, architecture: str = "") -> Model:
    spec = KNOWN[name]
    own = {common: key for key, common in spec.names.items()}
    config = {own.get(key, key): value for key, value in SMALLEST.items()}
    return model_from_config({**config, "model_type": name, "architectures": [architecture]})


@pytest.mark.parametrize("name", KNOWN)
def test_a_training_bill_counts_weights_and_activations(name: str) -> None:
    model = smallest(name)
    for attention in ("auto", "flash", "sdpa-mask", "eager"):
        for checkpointing in ("none", "selective", "full"):
            for precision in ("fp32", "amp", "pure-16"):
                training = TrainingSettings(
                    precision=precision, attention=attention, checkpointing=checkpointing,
                    sequence=32,
                )  # fmt: skip
                peak = training_bill(model, training).peak
                assert peak.n_bytes > 2 * model.parameters
                assert any("activations" in line.name for line in peak.lines) or (
                    peak.title.endswith("optimizer's step")
                )


@pytest.mark.parametrize("name", KNOWN)
def test_inference_holds_the_weights_and_the_keys_of_decoder_layers(name: str) -> None:
    model = smallest(name)
    bill = inference_bill(model, InferenceSettings(), context=64)
    kept = sum(line.symbols["L_kv"] for line in bill.lines if line.name.startswith("KV cache"))
    assert bill.lines[0].n_bytes == 2 * model.parameters + model.buffer_bytes
    assert kept == model.decoder_layers + model.cross_layers
