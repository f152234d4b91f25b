"""Models from names, configurations and numbers, and the errors of what is wrong with them."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tokmill import bill
from tokmill.bill.models.families import KNOWN
from tokmill.bill.models.load import load_model, model_from_config
from tokmill.bill.models.model import UNKNOWN_LAYERS, Model
from tokmill.errors import UsageError
from tokmill.settings.training import FAMILIES, ModelSettings

SMALL = {"layers": 2, "hidden": 64, "heads": 4, "ffn": 96, "vocabulary": 100}
MORE = {
    "chatglm": {"kv_heads": 2},
    "mixtral": {"experts": 4, "active_experts": 2, "expert_ffn": 8, "ffn": 0},
    "gpt_oss": {"experts": 4, "active_experts": 2, "expert_ffn": 8, "ffn": 0},
    "qwen3_moe": {"experts": 4, "active_experts": 2, "expert_ffn": 8},
    "bloom": {"ffn": 0},
}


def load(**settings: Any) -> Model:
    return load_model(ModelSettings(**settings))


def test_numbers_win_over_those_of_the_name() -> None:
    assert load(
        name="gpt2", layers=2, hidden=64, heads=4, vocabulary=100, positions=8
    ).parameters == (100 * 64 + 8 * 64 + 2 * (12 * 64 * 64 + 13 * 64) + 2 * 64)
    assert load(name="gpt2", tied="no").parameters == 163_037_184
    assert load(name="llama-3-8b", tied="yes").parameters == 8_030_261_248 - 128256 * 4096
    assert load(name="gpt2", vocabulary=1).vocabulary == 1


def test_another_number_of_layers_follows_the_rule_of_the_family(tmp_path: Path) -> None:
    config = {
        "model_type": "gemma2", "num_hidden_layers": 2, "hidden_size": 64,
        "layer_types": ["full_attention", "full_attention"],
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))

    sliding = [block for block in load(name=str(path), layers=3).blocks if block.window]
    assert load(name=str(path)).windows == ()
    assert [(block.window, block.layers) for block in sliding] == [(4096, (0, 2))]


@pytest.mark.parametrize("family", [name for name in FAMILIES if KNOWN[name].needed])
def test_a_family_and_numbers_are_a_model(family: str) -> None:
    model = load(family=family, **(SMALL | MORE.get(family, {})))

    assert (model.name, model.hidden, model.vocabulary) == (family, 64, 100)
    assert model.layers == 2 + model.cross_layers
    assert model.parameters > 100 * 64


def test_a_model_by_numbers_takes_the_vocabulary_of_the_dataset_by_default() -> None:
    silent = ModelSettings(family="plain", layers=1, hidden=8, heads=2)

    assert load_model(silent, vocabulary=77).vocabulary == 77
    assert load_model(replace(silent, vocabulary=5), vocabulary=77).vocabulary == 5


def test_missing_numbers_are_named_as_options() -> None:
    with pytest.raises(
        UsageError,
        match=r"family llama: a model by numbers needs --heads, --vocabulary, --ffn too$",
    ):
        load(family="llama", layers=2, hidden=64)
    with pytest.raises(UsageError, match=r"--experts, --active-experts, --expert-ffn too$"):
        load(family="mixtral", **(SMALL | {"ffn": 0}))


def test_a_family_that_numbers_cannot_describe_says_so() -> None:
    with pytest.raises(UsageError, match="deepseek_v3: numbers alone cannot describe it"):
        load(family="deepseek_v3", **SMALL)


def test_a_family_beside_a_name_must_be_its_own() -> None:
    assert load(name="gpt2", family="gpt2").family == "gpt2"
    with pytest.raises(UsageError, match="its family is gpt2, not llama; leave out --family"):
        load(name="gpt2", family="llama")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "gpt2", "kv_heads": 4}, "--kv-heads 4 does not exist in gpt2"),
        ({"name": "t5-small", "kv_heads": 4}, "--kv-heads 4 does not exist in t5"),
        ({"name": "llama-3-8b", "experts": 4}, "--experts 4 does not exist in llama"),
        ({"name": "bloom-560m", "ffn": 4}, "--ffn 4 does not exist in bloom"),
        ({"name": "gpt2", "heads": 7}, "n_embd 768 is not a multiple of --heads 7"),
        (
            {"name": "llama-3-8b", "heads": 12},
            "--heads 12 is not a multiple of num_key_value_heads",
        ),
        ({"name": "gpt2", "layers": 10**9}, "--layers: expected a whole number from 1 to 10000"),
        ({"name": "gpt2", "layers": -2}, "--layers: expected a whole number from 1 to 10000"),
    ],
)
def test_numbers_that_contradict_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"^model {settings['name']}: {message}"):
        load(**settings)


def test_a_nested_text_model_is_counted_and_the_other_parts_are_named() -> None:
    text = {"model_type": "gemma3_text", "hidden_size": 64, "num_hidden_layers": 2}
    inner = model_from_config(text)
    outer = model_from_config({"model_type": "gemma3", "text_config": text})

    assert (outer.tensors, inner.leaves_out) == (inner.tensors, ())
    assert outer.leaves_out == ("parts besides the text model (vision, audio)",)


SMALL_GPT2 = {"model_type": "gpt2", "n_embd": 8, "n_layer": 2, "n_head": 2, "vocab_size": 9}
SMALL_OLMO = {
    "model_type": "olmo3", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
    "vocab_size": 9, "intermediate_size": 96, "sliding_window": 9,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "no model_type; give a config.json of transformers, --parameters"),
        ({"model_type": "a\nb"}, r"cannot count the parameters of a\\nb: "),
        ({"model_type": "a" * 900}, f"cannot count the parameters of {'a' * 80}: "),
        ({"model_type": 3}, "model_type: expected a string, found 3"),
        ({"model_type": "llama"}, "no hidden_size, which llama needs"),
        ({"model_type": "gpt2", "n_layer": 2}, "no n_embd, which gpt2 needs"),
        ({"model_type": "gpt2", "n_embd": -8, "n_layer": 2}, "n_embd: expected a whole number"),
        (SMALL_GPT2 | {"attn_pdrop": 1.5}, "attn_pdrop: expected a number from 0 to 1, found 1.5"),
        (
            SMALL_GPT2 | {"tie_word_embeddings": "yes"},
            "tie_word_embeddings: expected true or false",
        ),
        (SMALL_OLMO | {"layer_types": ["full_attention"]}, "layer_types: expected 2 of full_att"),
        (SMALL_OLMO | {"layer_types": [3, 4]}, "layer_types: expected a list of str"),
    ],
)
def test_a_wrong_configuration_says_what_is_wrong(config: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"^my.json: {message}"):
        model_from_config(config, "my.json")


NEWEST = {
    "model_type": "newest", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
    "intermediate_size": 96, "vocab_size": 100, "attention_bias": True, "rope_theta": 10000,
    "eos_token_id": [1, 2], "torch_dtype": "bfloat16", "use_cache": True, "num_experts": 0,
    "layer_types": ["full_attention", "sliding_attention"],
}  # fmt: skip


def test_an_unknown_plain_decoder_is_billed_approximately_and_says_so() -> None:
    model = model_from_config(NEWEST, "my.json")
    like_llama = model_from_config(NEWEST | {"model_type": "llama"})
    assert (model.parameters, model.family) == (like_llama.parameters, "newest")
    assert UNKNOWN_LAYERS in model.leaves_out
    expected = r"^my.json: newest is not known \(transformers .*\): billed approximately, .*headers"
    assert re.match(expected, model.warnings[0])


def test_a_bill_of_an_unknown_decoder_never_says_that_it_fits() -> None:
    found = bill.training(model=NEWEST, gpu="H100")
    assert UNKNOWN_LAYERS in found.peak.missing
    served = bill.inference(model=NEWEST, context=100)
    assert UNKNOWN_LAYERS in served.missing


@pytest.mark.parametrize(
    "more",
    [
        {"n_routed_experts": 8},
        {"kv_lora_rank": 512},
        {"use_qk_norm": True},
        {"mamba": {"d_state": 16}},
        {"layer_types": ["full_attention", "linear_attention"]},
        {"layer_types": 3},
        {"mtp_layers": [3]},
        {"hidden_act": "relu2"},
        {"hidden_activation": "xielu"},
        {"activation_function": "gelu"},
        {"norm_type": "layernorm"},
        {"position_embedding_type": "learned"},
        {"mlp_ratio": 2.5},
    ],
)
def test_a_field_that_no_plain_decoder_has_is_refused_by_name(more: dict[str, Any]) -> None:
    with pytest.raises(
        UsageError,
        match=rf"^my.json: cannot count the parameters of newest: transformers .*; it is no plain "
        rf"decoder: {next(iter(more))}[^;]*; give its safetensors files .*--parameters, or .*--fam",
    ):
        model_from_config(NEWEST | more, "my.json")


def test_what_transformers_5_writes_into_every_file_is_no_other_architecture() -> None:
    written = {
        "return_dict": True, "output_hidden_states": False, "problem_type": None,
        "time_step_limit": None, "id2label": {"0": "LABEL_0"}, "transformers_version": "5.23.0",
        "chunk_size_feed_forward": 0, "hidden_act": "silu", "logit_cap": {"__float__": "Infinity"},
    }  # fmt: skip
    model = model_from_config(NEWEST | written)
    assert model.parameters == model_from_config(NEWEST).parameters
    limits = {"time_step_limit": [0.0, {"__float__": "Infinity"}]}
    mamba = {"model_type": "mamba2", "num_hidden_layers": 2, "hidden_size": 4096}
    assert model_from_config(mamba | limits) == model_from_config(mamba)
    with pytest.raises(UsageError, match=r"^my.json: __float__: expected a number, found .*'wide'"):
        model_from_config(NEWEST | {"scale": {"__float__": "wide"}}, "my.json")


def test_without_transformers_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    expected = r"transformers is not installed \(pip install 'tokmill\[models\]'\)"
    with pytest.raises(UsageError, match=expected):
        model_from_config(NEWEST | {"n_routed_experts": 8})
    assert re.search(expected, model_from_config(NEWEST).warnings[0])
    assert model_from_config(NEWEST | {"model_type": "llama"}).warnings == ()


@pytest.mark.parametrize(
    ("kind", "switch"),
    [("stablelm", "qk_layernorm"), ("deepseek_v2", "mlp_bias"), ("gpt2", "add_cross_attention")],
)
def test_a_switch_that_makes_another_architecture_is_no_exact_count(
    kind: str, switch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UsageError, match=f"cannot count the parameters of {kind}: "):
        model_from_config(NEWEST | {"model_type": kind, switch: True})
