"""Configurations of recent models: counted exactly by the tables, or by transformers itself.

Every number and switch of a configuration class is changed in turn. What changes a parameter must
change ours, or the configuration must be refused or left to transformers.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.oracles.conftest import import_or_skip

import_or_skip("torch", "transformers")

import transformers  # noqa: E402

from tests.oracles.test_parameters import (  # noqa: E402
    OWN_CODE,
    made_by_transformers,
    parameters,
    shapes,
)
from tokmill.bill.models import load  # noqa: E402
from tokmill.bill.models.families import KNOWN  # noqa: E402
from tokmill.bill.models.load import model_from_config  # noqa: E402
from tokmill.errors import UsageError  # noqa: E402

SMALL: dict[str, Any] = {
    "num_hidden_layers": 3, "hidden_size": 64, "intermediate_size": 20, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 97, "head_dim": 24, "num_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 12, "n_shared_experts": 1,
    "kv_lora_rank": 8, "q_lora_rank": 10, "qk_rope_head_dim": 4, "qk_nope_head_dim": 6,
    "v_head_dim": 5, "max_position_embeddings": 40, "word_embed_proj_dim": 64,
    "shared_expert_intermediate_size": 9, "first_k_dense_replace": 1, "type_vocab_size": 2,
}  # fmt: skip
UNSEEN = {
    "is_gated_act", "is_encoder_decoder", "architectures", "problem_type", "pad_token_id",
    "bos_token_id", "eos_token_id", "chunk_size_feed_forward", "scale_decoder_outputs",
}  # fmt: skip
"""Keys that the class makes of others, that choose another class, or that are marks."""


OF_FAMILY: dict[str, dict[str, Any]] = {
    "mamba2": {"num_heads": 8, "head_dim": 16, "n_groups": 2},
    "nemotron_h": {
        "hybrid_override_pattern": "ME*-",
        "mamba_num_heads": 8,
        "mamba_head_dim": 16,
        "n_groups": 2,
        "ssm_state_size": 8,
    },
    "lfm2_moe": {"layer_types": ["conv", "full_attention", "conv"]},
    "mimo_v2_flash": {"n_routed_experts": 4, "n_group": 1, "topk_group": 1, "v_head_dim": 6},
    "granitemoehybrid": {"mamba_n_heads": 8, "mamba_d_head": 16},
    "bamba": {"mamba_n_heads": 8, "mamba_d_head": 16},
    "falcon_h1": {"mamba_n_heads": 8, "mamba_d_ssm": 64},
}
"""Sizes that must fit each other."""


def variants(base: dict[str, Any], defaults: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield changes of each switch and each number, one at a time."""
    yield {}
    for key, default in defaults.items():
        value = base.get(key, default)
        if key in UNSEEN:
            continue
        if isinstance(value, bool):
            yield {key: not value}
        elif isinstance(value, int):
            yield from ({key: value * 2}, {key: None})
        elif value is None:
            yield from ({key: True}, {key: 2})


@pytest.mark.parametrize(
    "family", sorted(set(KNOWN) - OWN_CODE - {"mistral4", "rwkv7", "glm4v_moe_text"})
)
def test_no_field_of_a_configuration_changes_parameters_unseen(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "meta_model", None)  # the tables alone
    own = {common: key for key, common in KNOWN[family].names.items()}
    defaults = transformers.CONFIG_MAPPING[family]().to_dict()
    named = {key: own.get(key, key) for key in SMALL}
    named = {key: name if name in defaults else key for key, name in named.items()}
    base = {named[key]: value for key, value in SMALL.items() if named[key] in defaults}
    base |= OF_FAMILY.get(family, {})
    if family in ("t5", "mt5"):
        # FLAN-T5's files have a head; transformers 5.23 ties it in a model without files.
        del defaults["tie_word_embeddings"]
    compared = 0
    for change in variants(base, defaults):
        try:
            theirs = made_by_transformers(family, base | change)
        except Exception:
            continue
        try:
            ours = model_from_config(base | change | {"model_type": family})
        except (UsageError, TypeError):  # refused, or left to transformers
            continue
        compared += 1
        assert shapes(ours) == parameters(theirs), change
    assert compared > 9


GROUPED = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 128, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
HEADS = {**GROUPED, "head_dim": 16}
MIXED = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
ROUTED = {
    "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
    "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
}  # fmt: skip
LATENT = {
    **GROUPED, **ROUTED, "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 8,
    "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8, "index_n_heads": 2,
    "index_head_dim": 8,
}  # fmt: skip
LINEAR = {
    **HEADS, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}  # fmt: skip
STATES = {
    "hidden_size": 64, "num_hidden_layers": 3, "vocab_size": 128, "state_size": 8,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
RECENT: dict[str, dict[str, Any]] = {
    "smollm3": GROUPED, "olmo3": GROUPED, "granite": GROUPED, "seed_oss": HEADS, "glm": HEADS,
    "granitemoe": {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2}, "glm4": HEADS,
    "glm4_moe": {**HEADS, **ROUTED}, "ernie4_5": HEADS, "ministral": HEADS, "ministral3": HEADS,
    "ernie4_5_moe": {**GROUPED, "moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 24},
    "exaone4": GROUPED, "apertus": GROUPED, "starcoder2": GROUPED, "stablelm": GROUPED,
    "minimax_m2": {**HEADS, "num_local_experts": 4, "num_experts_per_tok": 2},
    "olmoe": {**GROUPED, "num_experts": 4, "num_experts_per_tok": 2}, "deepseek_v32": LATENT,
}  # fmt: skip
OF_2026: dict[str, dict[str, Any]] = {
    "granitemoehybrid": {
        **GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2, "mamba_n_heads": 8,
        "layer_types": ["mamba", "attention"] * 2,
    },
    "glm_moe_dsa": LATENT, "qwen3_next": {**LINEAR, **MIXED}, "qwen3_5_text": LINEAR,
    "qwen3_5_moe_text": {**LINEAR, **MIXED},
    "minimax": {**HEADS, "num_local_experts": 4, "num_experts_per_tok": 2},
    "llama4_text": {**HEADS, "num_local_experts": 4, "intermediate_size_mlp": 80},
    "gemma3n_text": {
        **HEADS, "num_kv_shared_layers": 0, "vocab_size_per_layer_input": 128,
        "intermediate_size": 96, "activation_sparsity_pattern": None,
        "layer_types": ["full_attention"] * 4,
    },
    "gemma4_text": {**HEADS, "num_kv_shared_layers": 0, "vocab_size_per_layer_input": 128},
    "lfm2": GROUPED,
    "lfm2_moe": {**GROUPED, **MIXED, "layer_types": ["conv", "full_attention"] * 2},
    "nemotron_h": {
        **HEADS, "mamba_num_heads": 8, "mamba_head_dim": 16, "n_groups": 2,
        "hybrid_override_pattern": "ME*-",
    },
    "falcon_h1": {**GROUPED, "mamba_d_ssm": 64, "mamba_n_heads": 8, "mamba_d_head": 8},
    "mamba": STATES, "mamba2": {**STATES, "num_heads": 8, "head_dim": 16, "n_groups": 2},
    "rwkv": {key: value for key, value in STATES.items() if key != "state_size"},
}  # fmt: skip
KINDS = RECENT | OF_2026


@pytest.mark.parametrize("kind", KINDS)
def test_a_recent_model_is_counted_exactly(kind: str) -> None:
    theirs = made_by_transformers(kind, dict(KINDS[kind]))
    ours = model_from_config(KINDS[kind] | {"model_type": kind})
    assert ours.parameters == theirs.num_parameters()
    assert shapes(ours) == parameters(theirs)
    if kind not in KNOWN:  # tables leave out some hundred bytes of rotary positions
        assert ours.buffer_bytes == sum(b.numel() * b.element_size() for b in theirs.buffers())
    assert ours.has_shape == (kind in KNOWN)
    assert not ours.warnings


@pytest.mark.parametrize("kind", ["qwen3_next", "llama4_text", "lfm2_moe", "glm_moe_dsa"])
def test_idle_experts_are_no_active_parameters(kind: str) -> None:
    model = model_from_config(KINDS[kind] | {"model_type": kind})
    stacked = sum(tensor.count for tensor in model.tensors if tensor.kind == "experts")
    assert model.experts is not None
    used = model.experts.active / model.experts.count
    assert 0 < used < 1
    assert model.active_parameters == model.parameters - round(stacked * (1 - used))


def test_a_table_needs_neither_torch_nor_transformers() -> None:
    config = KINDS["glm4_moe"] | {"model_type": "glm4_moe"}
    code = (
        "import sys; from tokmill.bill.models.load import model_from_config; "
        f"assert model_from_config({config!r}).parameters; "
        "assert not {'torch', 'transformers', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_code_of_others_is_never_run(tmp_path: Any) -> None:
    mark = tmp_path / "ran"
    (tmp_path / "evil.py").write_text(f"open({str(mark)!r}, 'w')")
    config = KINDS["rwkv"] | {
        "model_type": "rwkv",
        "auto_map": {"AutoModelForCausalLM": f"{tmp_path}--evil.Model"},
    }
    assert model_from_config(config).parameters
    assert not mark.exists()


def test_a_model_with_images_is_counted_whole() -> None:
    text = {"model_type": "qwen3_5_text", **LINEAR}
    vision = {"depth": 1, "hidden_size": 32, "num_heads": 2, "intermediate_size": 48}
    config = {"model_type": "qwen3_5", "text_config": text, "vision_config": vision}
    whole = model_from_config(config)
    assert whole.parameters > model_from_config(text).parameters
    assert any("visual" in tensor.name for tensor in whole.tensors)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"model_type": "rwkv", "num_hidden_layers": 1 << 40}, "are too many to make"),
        ({"model_type": "rwkv", "hidden_size": "wide"}, "cannot make it"),
        ({"model_type": "no_such_model"}, "does not know it"),
        ({"model_type": "altclip_text_model"}, "makes it only as a part of other models"),
    ],
)
def test_what_transformers_cannot_make_is_one_line(config: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why) as error:
        model_from_config(config, "my.json")
    assert "\n" not in str(error.value)
