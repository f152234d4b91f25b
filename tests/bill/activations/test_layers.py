"""What a layer keeps per token: published sums, and what decides about single rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tokmill.bill.activations.adapters import (
    ADAPTER_AH,
    ADAPTER_D,
    ADAPTER_F,
    ADAPTER_RANK,
)
from tokmill.bill.activations.amounts import summed
from tokmill.bill.activations.attention import FUSED, KEY, QUERY, REPEATED, SCORES, VALUE
from tokmill.bill.activations.checkpoints import kept_products, last_kept, selective_rows
from tokmill.bill.activations.layers import layer_parts
from tokmill.bill.activations.part import INPUT
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


def test_tinyllama_keeps_94344_bytes_per_token_with_repeated_heads() -> None:
    training = TrainingSettings(precision="pure-16", sequence=1024, attention="sdpa-mask")
    with_mask = per_token(load_model(ModelSettings(name="tinyllama-1.1b")), training)
    assert with_mask - 2 * 1024 == 94_344


def test_a_llama_layer_keeps_16d_8_8ah_4a_8f() -> None:
    model = small("llama", kv_heads=8)
    training = TrainingSettings(precision="pure-16", sequence=64)
    assert per_token(model, training) == 16 * 256 + 8 + 8 * 256 + 4 * 8 + 8 * 1000


def test_a_grouped_kernel_keeps_keys_and_values_of_their_own_heads() -> None:
    training = TrainingSettings(precision="pure-16", sequence=64)
    whole, grouped = (per_token(small("llama", kv_heads=k), training) for k in (8, 2))
    assert whole - grouped == 2 * 2 * (8 - 2) * 32


def test_a_gpt2_layer_in_fp32_keeps_112d_16_4a() -> None:
    training = TrainingSettings(precision="fp32", sequence=64)
    assert per_token(small("gpt2", ffn=1024), training) == 112 * 256 + 16 + 4 * 8


@pytest.mark.parametrize(
    ("targets", "share", "share_in_fp32"),
    [("q_proj,v_proj", 0.756, 0.88), ("all-linear", 0.917, 1.47)],
)
def test_lora_keeps_most_of_the_activations(
    targets: str, share: float, share_in_fp32: float
) -> None:
    """Adapters in fp32, as peft makes them on a 16-bit base, keep more than full training."""
    model = load_model(ModelSettings(name="llama-2-7b"))
    full = TrainingSettings(precision="pure-16", sequence=1024)
    lora = replace(full, adapter="lora", adapter_targets=targets)
    at = replace(situation(model, lora), adapter=0)  # adapters of the base's type
    symbols = activation_symbols(model, lora, at)
    kept = sum(evaluate(summed(part.saved), symbols) for part in layer_parts(at))
    assert kept / per_token(model, full) == pytest.approx(share, abs=0.006)
    assert per_token(model, lora) / per_token(model, full) == pytest.approx(share_in_fp32, abs=0.01)


def test_adapters_on_a_16_bit_base_copy_each_input_in_fp32() -> None:
    model = small("llama")
    lora = TrainingSettings(precision="pure-16", sequence=64, adapter="lora")
    kept = [row for part in layer_parts(situation(model, lora)) for row in part.saved]
    assert kept.count(ADAPTER_D) == 5
    assert kept.count(ADAPTER_AH) == kept.count(ADAPTER_F) == 1
    assert kept.count(ADAPTER_RANK) == 7


def test_autocast_gives_every_linear_layer_a_copy_of_its_own() -> None:
    kept = layer_parts(situation(small("llama"), TrainingSettings(precision="amp", sequence=64)))
    assert [part.saved.count(INPUT) for part in kept] == [3, 2]


def test_gelu_new_under_autocast_keeps_three_steps_in_fp32() -> None:
    training = TrainingSettings(precision="amp", sequence=64)
    unfused, fused = (
        per_token(replace(small("gpt2"), activation=name), training)
        for name in ("gelu_new", "gelu")
    )
    assert unfused - fused == 12 * 1000


def test_relu_shares_its_result_with_the_last_matrix() -> None:
    training = TrainingSettings(precision="fp32", sequence=64)
    relu, gelu = (
        per_token(replace(small("opt"), activation=name), training) for name in ("relu", "gelu")
    )
    assert gelu - relu == 4 * 1000


def test_scores_grow_with_the_sequence_only_in_eager_attention() -> None:
    model = small("llama")

    def at(kernel: str, sequence: int) -> float:
        training = TrainingSettings(precision="pure-16", sequence=sequence, attention=kernel)
        return per_token(model, training)

    assert at("flash", 4096) == at("flash", 64)
    assert at("eager", 4096) - at("eager", 64) == (4 + 2) * 8 * (4096 - 64)


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


def test_bloom_is_eager_whatever_is_asked() -> None:
    asked = TrainingSettings(precision="fp32", sequence=64, attention="flash")
    kept = layer_parts(situation(small("bloom", ffn=0), asked))[0].saved
    assert SCORES in kept


def test_a_mixture_has_experts_where_others_have_a_feed_forward_layer() -> None:
    model = load_model(ModelSettings(name="mixtral-8x7b"))
    parts = layer_parts(situation(model, TrainingSettings(sequence=64)))
    assert [(part.name, part.n_layers) for part in parts] == [("attention", 32), ("experts", 32)]


@pytest.mark.parametrize(
    ("family", "kept"),
    [
        ("llama", 256 + 64 + 1000 + 256),  # q, v, gate, down
        ("gpt_neox", 3 * 256 + 1000),  # qkv, up
        ("opt", 256 + 256 + 1000),  # q, v, up
        ("phi3", 256 + 2 * 64 + 2 * 1000),  # qkv, gate and up in one
        ("mixtral", 256 + 64 + 8),  # q, v, router
    ],
)
def test_torchtitans_policy_keeps_every_second_product(family: str, kept: int) -> None:
    grouped = {} if family in ("gpt_neox", "opt") else {"kv_heads": 2}
    experts = {"experts": 8, "active_experts": 2} if family == "mixtral" else {}
    model = small(family, **grouped, **experts)
    training = TrainingSettings(precision="pure-16", sequence=64)
    at = situation(model, training)
    symbols = activation_symbols(model, training, at)
    assert kept_products(at, symbols) == kept
    rows = evaluate(summed(selective_rows(at)), {**symbols, "w_products": kept})
    assert rows == 2 * (256 + 256 + kept) + 4 * 8


def test_torchtitans_policy_counts_the_products_of_adapters_too() -> None:
    model = small("llama", kv_heads=2)
    training = TrainingSettings(precision="amp", adapter="lora", adapter_rank=8, sequence=64)
    at = situation(model, training)
    symbols = activation_symbols(model, training, at)
    # q, its B, the A of k, v, its B, the A of o, gate, its B, the A of up, down, its B
    assert kept_products(at, symbols) == (256 * 2 + 8 + 64 * 2 + 8 + 1000 * 2 + 8 + 256 * 2)
    assert last_kept(at, symbols) == 256


def test_falcon_of_the_new_architecture_keeps_keys_and_values_of_every_head() -> None:
    sizes = {"num_hidden_layers": 1, "hidden_size": 192, "num_attention_heads": 6}
    values = {"model_type": "falcon", **sizes, "num_kv_heads": 2, "vocab_size": 103}
    model = model_from_config({**values, "new_decoder_architecture": True, "bias": False})
    attention = layer_parts(situation(model, TrainingSettings(precision="fp32", sequence=64)))[0]
    assert {QUERY, REPEATED} < set(attention.saved)
    assert not {KEY, VALUE, FUSED} & set(attention.saved)
