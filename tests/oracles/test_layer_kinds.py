"""Families that a row describes by its parts, held against transformers: one small model of each.

Names and shapes of all tensors on the meta device; what autograd saves of all layers, with
transformers' own operations in torch (eager attention here); and what the model's own cache holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.oracles.conftest import import_or_skip

import_or_skip("torch", "transformers")

import torch  # noqa: E402
import transformers  # noqa: E402

from tests.oracles.test_parameters import made_by_transformers, parameters, shapes  # noqa: E402
from tokmill.bill.activations.layers import layer_parts, outside_rows  # noqa: E402
from tokmill.bill.activations.part import summed  # noqa: E402
from tokmill.bill.activations.situation import activation_symbols, situation  # noqa: E402
from tokmill.bill.formula import evaluate  # noqa: E402
from tokmill.bill.models.families import ROWS  # noqa: E402
from tokmill.bill.models.load import model_from_config  # noqa: E402
from tokmill.bill.serving import kv_cache_lines  # noqa: E402
from tokmill.settings.training import InferenceSettings, TrainingSettings  # noqa: E402

BATCH, SEQUENCE, VOCABULARY = 2, 192, 97
TOKENS = BATCH * SEQUENCE

SIZES: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 104, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": VOCABULARY,
}  # fmt: skip
HEADS = {**SIZES, "head_dim": 24}
MIXED = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
ROUTED = {
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
    "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
}  # fmt: skip
LATENT = {
    **SIZES, "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 8,
    "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 12,
}  # fmt: skip
LINEAR = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
    "linear_value_head_dim": 20, "layer_types": ["linear_attention", "full_attention"],
}  # fmt: skip
STATES = {
    "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 20, "mamba_chunk_size": 64,
}  # fmt: skip
SLIDING = {"sliding_window": 512}
CONFIGS: dict[str, dict[str, Any]] = {
    "qwen3_next": {**HEADS, **LINEAR, **MIXED, "shared_expert_intermediate_size": 56},
    "qwen3_5_text": {**HEADS, **LINEAR},
    "qwen3_5_moe_text": {**HEADS, **LINEAR, **MIXED, "shared_expert_intermediate_size": 56},
    "gemma4_text": {
        **HEADS, **SLIDING, "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 12,
        "vocab_size_per_layer_input": VOCABULARY, "global_head_dim": 40,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "llama4_text": {
        **HEADS, "num_local_experts": 4, "num_experts_per_tok": 1, "intermediate_size": 40,
        "intermediate_size_mlp": 80, "interleave_moe_layer_step": 2,
    },
    "glm_moe_dsa": {
        **LATENT, **ROUTED, "index_n_heads": 2, "index_head_dim": 8, "index_topk": 16,
    },
    "glm4_moe_lite": {**LATENT, **ROUTED},
    "deepseek_v32": {
        **LATENT, **ROUTED, "index_n_heads": 2, "index_head_dim": 8, "index_topk": 16,
    },
    "mistral4": {**LATENT, **ROUTED},
    "kimi_linear": {
        **LATENT, "num_experts": 4, "num_experts_per_token": 2, "moe_intermediate_size": 24,
        "q_lora_rank": None, "linear_num_heads": 4, "linear_head_dim": 20,
        "layer_types": ["linear_attention", "full_attention"],
        "mlp_layer_types": ["dense", "sparse"],
    },
    "bailing_hybrid": {
        **LATENT, "num_experts": 4, "num_experts_per_token": 2, "moe_intermediate_size": 24,
        "q_lora_rank": None, "head_dim": 20, "layer_group_size": 2, "first_k_dense_replace": 1,
        "num_expert_group": 1, "topk_group": 1,
    },
    "olmo_hybrid": {**SIZES, **LINEAR},
    "nemotron_h": {
        **HEADS, **MIXED, "n_routed_experts": 4, "moe_shared_expert_intermediate_size": 56,
        "moe_latent_size": 32, "mamba_num_heads": 8, "mamba_head_dim": 16, "n_groups": 2,
        "ssm_state_size": 20, "chunk_size": 64,
        "layers_block_type": ["linear_attention", "full_attention", "mlp", "moe"],
    },
    "granitemoehybrid": {
        **SIZES, **STATES, "num_local_experts": 4, "num_experts_per_tok": 2,
        "shared_intermediate_size": 56, "layer_types": ["mamba", "attention"],
    },
    "lfm2": {
        **SIZES, "layer_types": ["conv", "full_attention"], "block_multiple_of": 8,
    },
    "lfm2_moe": {
        **SIZES, **MIXED, "layer_types": ["conv", "full_attention"], "num_dense_layers": 1,
    },
    "falcon_h1": {**HEADS, **STATES, "mamba_d_ssm": 96, "mamba_n_heads": 6},
    "bamba": {**SIZES, **STATES, "attn_layer_indices": [1]},
    "jamba": {
        **SIZES, "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2,
        "expert_layer_offset": 0, "num_experts": 4, "mamba_d_state": 5, "mamba_dt_rank": 7,
    },
    "mamba2": {
        "hidden_size": 72, "num_hidden_layers": 2, "vocab_size": VOCABULARY, "num_heads": 6,
        "head_dim": 24, "state_size": 20, "n_groups": 2, "chunk_size": 64,
    },
    "mamba": {
        "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": VOCABULARY, "state_size": 5,
        "time_step_rank": 7,
    },
    "falcon_mamba": {
        "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": VOCABULARY, "state_size": 5,
        "time_step_rank": 7,
    },
    "minimax": {
        **HEADS, "layer_types": ["linear_attention", "full_attention"], "num_local_experts": 4,
        "num_experts_per_tok": 2, "block_size": 64,
    },
    "mimo_v2_flash": {**HEADS, **ROUTED, **SLIDING, "v_head_dim": 16},
    "deepseek_v4": {
        "hidden_size": 64, "vocab_size": VOCABULARY, "num_hidden_layers": 3,
        "num_attention_heads": 4, "head_dim": 32, "q_lora_rank": 16, "n_routed_experts": 4,
        "num_experts_per_tok": 2, "moe_intermediate_size": 24, "o_groups": 2, "o_lora_rank": 16,
        "index_n_heads": 2, "index_head_dim": 16, "index_topk": 8, "sliding_window": 512,
        "layer_types": [
            "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention",
        ],
        "mlp_layer_types": ["hash_moe", "moe", "moe"],
        "compress_rates": {
            "compressed_sparse_attention": 4, "heavily_compressed_attention": 8,
        },
    },
    "exaone_moe": {**HEADS, **MIXED, **SLIDING},
    "afmoe": {**HEADS, **MIXED, **SLIDING, "num_shared_experts": 1},
    "solar_open": {**HEADS, **ROUTED},
    "hy_v3": {**HEADS, **MIXED},
    "laguna": {**HEADS, **MIXED, **SLIDING, "shared_expert_intermediate_size": 56},
    "cohere2": {**HEADS, **SLIDING},
    "arcee": SIZES,
    "nemotron": SIZES,
    "nanochat": SIZES,
    "hunyuan_v1_dense": HEADS,
    "dots1": {**HEADS, **ROUTED, **SLIDING},
}  # fmt: skip
OTHERS_CODE = {"rwkv7", "glm4v_moe_text", "deepseek_v2", "deepseek_v3"}
"""Not a language model of transformers by itself, or held by other tests."""
KINDS = sorted({name for name, row in ROWS.items() if "parts" in row} - OTHERS_CODE)
ONLY_TEXT = {"mistral4": "Mistral4ForCausalLM"}
UNMEASURED = {"deepseek_v4", "nanochat"}
"""Their bills say so (`Style.measured`)."""


def test_every_family_that_is_described_by_parts_is_held() -> None:
    assert sorted(CONFIGS) == KINDS


def variants(kind: str) -> Iterator[dict[str, Any]]:
    """Yield the small configuration, and the class's defaults with a few layers, as both write."""
    yield CONFIGS[kind]
    yield {**CONFIGS[kind], "tie_word_embeddings": True}
    yield {**CONFIGS[kind], "attention_bias": True, "mlp_bias": True}


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_are_those_of_transformers_whoever_wrote_the_configuration(kind: str) -> None:
    for config in variants(kind):
        theirs = _made(kind, config)
        expected = parameters(theirs)
        assert shapes(model_from_config({**config, "model_type": kind})) == expected, config
        assert shapes(model_from_config(theirs.config.to_dict())) == expected, config


def _made(kind: str, config: dict[str, Any]) -> Any:
    if kind in ONLY_TEXT:
        with torch.device("meta"):
            made = transformers.CONFIG_MAPPING[kind](**config)
            return getattr(transformers, ONLY_TEXT[kind])(made)
    return made_by_transformers(kind, dict(config))


def _real(kind: str, dtype: Any) -> Any:
    marks = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    made = transformers.CONFIG_MAPPING[kind](**(CONFIGS[kind] | marks))
    torch.manual_seed(0)
    of = getattr(transformers, ONLY_TEXT[kind])._from_config if kind in ONLY_TEXT else None
    of = of or transformers.AutoModelForCausalLM.from_config
    return of(made, attn_implementation="eager").to(dtype)


def saved_bytes(kind: str, dtype: Any) -> float:
    """Return the bytes per token of distinct storages that a forward pass saves."""
    model, kept = _real(kind, dtype).train(), {}
    torch.set_num_threads(1)

    def pack(tensor: Any) -> Any:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    own = {p.untyped_storage().data_ptr() for p in (*model.parameters(), *model.buffers())}
    ids = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    assert loss.requires_grad
    sizes = (t.untyped_storage().nbytes() for at, t in kept.items() if at not in own)
    return sum(sizes) / TOKENS


def predicted_bytes(kind: str, precision: str) -> float:
    model = model_from_config({**CONFIGS[kind], "model_type": kind})
    training = TrainingSettings(
        precision=precision, micro_batch=BATCH, sequence=SEQUENCE, attention="eager"
    )
    facts = situation(model, training)
    symbols = activation_symbols(model, training, facts)
    layers = sum(
        len(part.layers) * evaluate(summed(part.saved), symbols) for part in layer_parts(facts)
    )
    return layers + evaluate(summed(outside_rows(facts)), symbols) + 4 * VOCABULARY


@pytest.mark.parametrize("kind", sorted(set(KINDS) - UNMEASURED))
@pytest.mark.parametrize(("precision", "dtype"), [("pure-16", "bfloat16"), ("fp32", "float32")])
def test_all_layers_save_what_the_rows_say_within_5_percent(
    kind: str, precision: str, dtype: str
) -> None:
    found = saved_bytes(kind, getattr(torch, dtype))
    assert predicted_bytes(kind, precision) == pytest.approx(found, rel=0.05)


def held_bytes(kept: Any, seen: dict[int, Any]) -> int:
    """Return the bytes of the floating-point tensors in a cache."""
    if isinstance(kept, torch.Tensor):
        if kept.is_floating_point():
            seen[kept.untyped_storage().data_ptr()] = kept
    elif isinstance(kept, dict | list | tuple):
        for each in kept.values() if isinstance(kept, dict) else kept:
            held_bytes(each, seen)
    elif hasattr(kept, "__dict__") and "onfig" not in type(kept).__name__:
        held_bytes(vars(kept), seen)
    return sum(tensor.numel() * tensor.element_size() for tensor in seen.values())


@pytest.mark.parametrize("kind", KINDS)
def test_the_cache_is_that_of_the_model_to_the_byte(kind: str) -> None:
    length = 40
    model = _real(kind, torch.bfloat16).eval()
    with torch.no_grad():
        made = model(input_ids=torch.zeros(BATCH, length, dtype=torch.long), use_cache=True)
    kept = getattr(made, "past_key_values", None) or getattr(made, "cache_params", None)
    ours = model_from_config({**CONFIGS[kind], "model_type": kind})
    lines = kv_cache_lines(ours, InferenceSettings(batch=BATCH), length)
    assert sum(line.n_bytes for line in lines) == held_bytes(kept, {})


TOWERS = ("qwen3_5", "qwen3_5_moe", "qwen3_vl", "qwen3_vl_moe", "gemma4", "llama4", "mistral3")


@pytest.mark.parametrize("kind", TOWERS)
def test_a_model_of_text_and_images_is_counted_whole_from_its_table(kind: str) -> None:
    more = {"vision_config": {"model_type": "gemma4_vision"}} if kind == "gemma4" else {}
    config = transformers.CONFIG_MAPPING[kind](**more, tie_word_embeddings=False)
    with torch.device("meta"):
        theirs = transformers.AutoModelForImageTextToText.from_config(config)
    ours = model_from_config(config.to_dict() | {"tie_word_embeddings": False})
    assert ours.parameters == sum(tensor.numel() for tensor in theirs.parameters())
    assert ours.has_shape
