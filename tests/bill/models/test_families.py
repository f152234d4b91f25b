"""Families of models: all that the bills need of each, and what is peculiar to some.

tests/oracles/test_parameters.py compares names and shapes of all tensors with transformers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tokmill.bill.models.families import KNOWN, ROWS
from tokmill.bill.models.load import load_model, model_from_config
from tokmill.bill.models.model import Model
from tokmill.bill.serving import inference_bill
from tokmill.bill.training_bill import training_bill
from tokmill.errors import UsageError
from tokmill.settings.training import InferenceSettings, ModelSettings, TrainingSettings

SMALLEST = {
    "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 96, "vocab_size": 100, "num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "head_dim": 16, "max_position_embeddings": 128,
}  # fmt: skip


OF_LAYERS = {
    "nemotron_h": {"hybrid_override_pattern": "ME*-"},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
}
"""Keys of families that have no rule for the kinds of their layers."""


def smallest(name: str, **more: Any) -> Model:
    own = {common: key for key, common in KNOWN[name].names.items()}
    config = {own.get(key, key): value for key, value in SMALLEST.items()}
    return model_from_config({**config, "model_type": name, **OF_LAYERS.get(name, {}), **more})


@pytest.mark.parametrize("name", KNOWN)
def test_a_training_bill_counts_weights_and_activations(name: str) -> None:
    model = smallest(name)
    for attention in ("auto", "flash", "sdpa-mask", "eager"):
        for checkpointing in ("none", "selective", "full"):
            training = TrainingSettings(
                attention=attention, checkpointing=checkpointing, sequence=32
            )
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
    keeping = [
        layer
        for block in model.blocks
        if block.kind not in ("mlp", "experts", "inputs", "other") and "shared" not in block.traits
        for layer in block.layers
        if layer >= model.encoder_layers
    ]
    assert kept == len(keeping)
    assert set(keeping) == set(range(model.encoder_layers, model.layers)) or name == "nemotron_h"


L, D, A, V = 3, 64, 4, 50
SIZES = {"num_hidden_layers": L, "hidden_size": D, "num_attention_heads": A, "vocab_size": V}


@pytest.mark.parametrize(
    ("kind", "config", "between", "after_softmax"),
    [
        ("gpt2", {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.3}, 0.0, 0.3),
        ("gpt2", {"resid_pdrop": 0.2, "embd_pdrop": 0.4, "attn_pdrop": 0.0}, 0.4, 0.0),
        ("gpt_neox", {"intermediate_size": 20, "hidden_dropout": 0.2}, 0.2, 0.0),
        ("opt", {"ffn_dim": 20}, 0.1, 0.0),
        ("bloom", {"attention_dropout": 0.4}, 0.0, 0.4),
        ("falcon", {}, 0.0, 0.0),
        ("phi", {"intermediate_size": 20, "embd_pdrop": 0.5}, 0.5, 0.0),
        ("seed_oss", {"intermediate_size": 20}, 0.1, 0.0),
    ],
)
def test_dropout_between_matrices_and_after_softmax_are_read_apart(
    kind: str, config: dict[str, Any], between: float, after_softmax: float
) -> None:
    more = {"num_key_value_heads": 4} if kind == "seed_oss" else {}
    found = model_from_config({**SIZES, **more, **config, "model_type": kind})
    assert (found.dropout, found.attention_dropout) == (between, after_softmax)


def test_more_active_experts_than_experts_are_refused() -> None:
    with pytest.raises(UsageError, match="num_experts_per_tok 7 is above num_local_experts 4"):
        smallest("mixtral", num_experts_per_tok=7)


def test_compressed_attention_does_not_split_the_matrices_to_the_ranks() -> None:
    splits = {
        t.name.removeprefix("model.layers.{}.self_attn."): t.split
        for t in smallest("deepseek_v2").tensors
        if "self_attn" in t.name and t.kind == "linear"
    }
    assert splits == {
        "q_a_proj.weight": "none", "q_b_proj.weight": "columns",
        "kv_a_proj_with_mqa.weight": "none", "kv_b_proj.weight": "columns",
        "o_proj.weight": "rows",
    }  # fmt: skip


def test_layers_that_are_not_loaded_are_named() -> None:
    assert "multi-token prediction" in smallest("deepseek_v3").leaves_out[0]
    assert smallest("deepseek_v3", num_nextn_predict_layers=0).leaves_out == ()


def test_the_first_chatglm_is_refused_for_it_is_another_model() -> None:
    with pytest.raises(UsageError, match=r"parameters of chatglm: .* inner_hidden_size"):
        smallest("chatglm", inner_hidden_size=16384)


def test_minimind_is_tied_norms_heads_and_is_pi_times_as_wide() -> None:
    found = model_from_config({**SIZES, "model_type": "minimind", "num_key_value_heads": 2})
    h, width = D // A, 256  # 64 * pi = 201.06, up to a multiple of 64

    layer = 2 * D * D + 2 * D * 2 * h + 3 * D * width + 2 * D + 2 * h
    assert found.parameters == V * D + L * layer + D
    assert found.ffn == width
    assert found.buffer_bytes == 2 * 4 * 32768 * h


def test_experts_of_minimind_are_as_wide_as_its_layer_and_shared_ones_come_on_top() -> None:
    sizes = {**SIZES, "model_type": "minimind", "num_key_value_heads": 2}
    dense = model_from_config(sizes).parameters
    found = model_from_config({**sizes, "use_moe": True, "n_shared_experts": 1})

    assert found.parameters == dense + L * (4 * 3 * D * 256 + 4 * D)
    assert found.active_parameters == found.parameters - L * 3 * 3 * D * 256


@pytest.mark.parametrize(
    ("layers", "hidden", "ranks", "published"),
    [
        (12, 768, (64, 128, 64, 32), 191_034_624),
        (24, 2048, (96, 256, 96, 64), 1_527_404_544),
        (32, 2560, (96, 320, 96, 64), 2_947_735_040),
    ],
)
def test_rwkv_7_has_its_published_sizes(
    layers: int, hidden: int, ranks: tuple[int, ...], published: int
) -> None:
    keys = ("decay_low_rank_dim", "gate_low_rank_dim", "a_low_rank_dim", "v_low_rank_dim")
    config = {"hidden_size": hidden, "num_hidden_layers": layers, "vocab_size": 65536}
    model = model_from_config(
        {"model_type": "rwkv7", **config, **dict(zip(keys, ranks, strict=True))}
    )
    assert model.parameters == published


PUBLISHED = {
    "qwen3_next": ({"hidden_size": 2048, "num_hidden_layers": 48}, 79_674_391_296),
    "glm_moe_dsa": ({"hidden_size": 6144, "num_hidden_layers": 78}, 743_911_199_232),
    "kimi_linear": ({"hidden_size": 2304, "num_hidden_layers": 27}, 49_133_074_464),
    "llama4_text": ({"hidden_size": 5120, "num_hidden_layers": 48}, 107_769_861_120),
    "jamba": ({"hidden_size": 4096, "num_hidden_layers": 32}, 51_570_323_328),
    "deepseek_v4": ({"hidden_size": 4096, "num_hidden_layers": 43}, 284_325_869_015),
    "arcee": (
        {"hidden_size": 2560, "num_hidden_layers": 36, "num_attention_heads": 20,
         "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 128004},
        4_619_184_640,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_released_model_of_2026_is_counted_without_transformers(name: str) -> None:
    config, parameters = PUBLISHED[name]
    model = model_from_config({**config, "model_type": name})
    assert (model.parameters, model.has_shape, model.warnings) == (parameters, True, ())


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if "parts" in row])
def test_a_wrong_number_of_a_row_is_said_in_one_line(name: str) -> None:
    messages = []
    for key in ROWS[name]["defaults"]:
        for value in ("x", -1, [1]):
            try:
                smallest(name, **{key: value})
            except UsageError as error:
                messages.append(str(error))
    assert len(messages) > len(ROWS[name]["defaults"])
    assert not any("\n" in message for message in messages)


def test_every_family_that_is_described_by_its_parts_stands_in_the_documentation() -> None:
    page = (Path(__file__).parents[3] / "docs" / "memory.md").read_text(encoding="utf-8")
    table = page.partition("### Families by the kinds of their layers")[2]
    by_parts = [name for name, row in ROWS.items() if "parts" in row]
    assert [name for name in by_parts if f"`{name}`" not in table] == []


ASKED = ("auto", "flash", "sdpa-mask", "eager")


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("llama-3.2-1b", ("flash", "flash", "sdpa-mask", "eager")),
        ("gemma-2-2b", ("eager", "flash", "eager", "eager")),
        ("gpt-oss-20b", ("eager", "flash", "eager", "eager")),
        ("bloom-560m", ("eager", "eager", "eager", "eager")),
    ],
)
def test_attention_is_eager_where_a_family_lacks_the_kernel(
    name: str, runs: tuple[str, ...]
) -> None:
    model = load_model(ModelSettings(name=name))
    assert tuple(model.style.attention(asked) for asked in ASKED) == runs


V4 = {
    "model_type": "deepseek_v4", "hidden_size": 4096, "num_hidden_layers": 43,
    "num_nextn_predict_layers": 1,
}  # fmt: skip


def test_a_list_of_layers_may_go_on_with_the_layers_of_multi_token_prediction() -> None:
    ratios = [0, 0] + [4, 128] * 20 + [4]
    model = model_from_config({**V4, "compress_ratios": [*ratios, 0]})
    assert model.parameters == model_from_config({**V4, "compress_ratios": ratios}).parameters
    # DeepSeek-V4-Flash as it is published: transformers' own count of its config.json.
    assert model.parameters == 284_332_230_231
    with pytest.raises(UsageError, match="expected 43 words, one for each layer"):
        model_from_config({**V4, "compress_ratios": [*ratios, 0, 0]})


def test_a_model_whose_experts_are_narrower_than_its_type_says_is_not_counted_upwards() -> None:
    config = {
        "model_type": "kimi_linear", "hidden_size": 7168, "num_hidden_layers": 93,
        "num_experts": 896, "moe_intermediate_size": 3072, "routed_expert_hidden_size": 3584,
    }  # fmt: skip
    with pytest.raises(UsageError, match="routed_expert_hidden_size"):
        model_from_config({"model_type": "kimi_k3", "text_config": config})


def test_a_plain_decoder_may_have_layers_of_multi_token_prediction() -> None:
    sizes = {
        "hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 11008, "vocab_size": 151680,
        "attention_bias": True, "num_nextn_predict_layers": 1, "hidden_act": "silu",
    }  # fmt: skip
    model = model_from_config({"model_type": "mimo", **sizes})
    assert "layers of multi-token prediction" in " ".join(model.leaves_out)
    assert 7e9 < model.parameters < 8e9
