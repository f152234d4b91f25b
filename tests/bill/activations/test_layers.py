"""What a layer keeps per token: published sums, and what decides about single rows."""

from __future__ import annotations

from dataclasses import replace

from tokmill.bill.activations.attention import FUSED, KEY, QUERY, REPEATED, VALUE
from tokmill.bill.activations.layers import layer_parts
from tokmill.bill.activations.part import summed
from tokmill.bill.activations.situation import activation_symbols, situation
from tokmill.bill.formula import evaluate
from tokmill.bill.models.load import load_model, model_from_config
from tokmill.bill.models.model import Model
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings


def small(family: str, **numbers: int) -> Model:
    sizes = {"layers": 2, "hidden": 256, "heads": 8, "ffn": 1000, "vocabulary": 512} | numbers
    return replace(
        load_model(ModelSettings(family=family, **sizes)), dropout=0.0, attention_dropout=0.0
    )


def per_token(model: Model, training: TrainingSettings) -> float:
    """Give the bytes that one layer keeps per token."""
    at = situation(model, training)
    symbols = activation_symbols(model, training, at)
    return sum(evaluate(summed(part.saved), symbols) for part in layer_parts(at))


def test_a_grouped_kernel_keeps_keys_and_values_of_their_own_heads() -> None:
    training = TrainingSettings(precision="pure-16", sequence=64)
    whole, grouped = (per_token(small("llama", kv_heads=k), training) for k in (8, 2))
    assert whole - grouped == 2 * 2 * (8 - 2) * 32


def test_dropout_keeps_a_byte_for_each_element_of_its_mask() -> None:
    model = small("gpt2")
    training = TrainingSettings(precision="fp32", sequence=64)
    more = per_token(replace(model, dropout=0.1), training) - per_token(model, training)
    assert more == 2 * 256


def test_dropout_after_softmax_keeps_its_own_masks() -> None:
    model = small("gpt2")
    training = TrainingSettings(precision="fp32", sequence=64, attention="eager")
    scores = replace(model, attention_dropout=0.1)
    assert per_token(scores, training) - per_token(model, training) == (1 + 4) * 8 * 64
    between = replace(model, dropout=0.1)
    assert per_token(between, training) - per_token(model, training) == 2 * 256


def test_falcon_of_the_new_architecture_keeps_keys_and_values_of_every_head() -> None:
    sizes = {"num_hidden_layers": 1, "hidden_size": 192, "num_attention_heads": 6}
    values = {"model_type": "falcon", **sizes, "num_kv_heads": 2, "vocab_size": 103}
    model = model_from_config({**values, "new_decoder_architecture": True, "bias": False})
    attention = layer_parts(situation(model, TrainingSettings(precision="fp32", sequence=64)))[0]
    assert {QUERY, REPEATED} < set(attention.saved)
    assert not {KEY, VALUE, FUSED} & set(attention.saved)
