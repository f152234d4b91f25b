"""Names, shapes and types of what peft trains, held against ours, on models that take no memory."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from tokmill.bill.models.adapters import adapter_tensors
from tokmill.bill.models.load import model_from_config
from tokmill.bill.states.precision import scheme_of
from tokmill.settings.training import TrainingSettings

REASON = "the oracle is not installed: make oracles"

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason=REASON)
    transformers = pytest.importorskip("transformers", reason=REASON)

SMALL: dict[str, Any] = {
    "num_hidden_layers": 3,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 80,
    "pad_token_id": 0,
}
GROUPED = SMALL | {"num_key_value_heads": 2}
MIXTURE = GROUPED | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
MLA = SMALL | {
    "num_key_value_heads": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 24, "q_lora_rank": 16, "kv_lora_rank": 8, "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8, "v_head_dim": 8, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1,
}  # fmt: skip
CONFIGS = {
    "gpt2": {"n_layer": 3, "n_embd": 32, "n_head": 4, "vocab_size": 80},
    "gpt_neox": SMALL,
    "opt": SMALL | {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "bloom": {"n_layer": 3, "hidden_size": 32, "n_head": 4, "vocab_size": 80},
    "llama": GROUPED,
    "mistral": GROUPED,
    "mixtral": GROUPED | {"num_local_experts": 4},
    "qwen2": GROUPED,
    "qwen2_moe": MIXTURE | {"shared_expert_intermediate_size": 16},
    "qwen3": GROUPED,
    "qwen3_moe": MIXTURE,
    "gemma2": GROUPED | {"head_dim": 8},
    "phi": GROUPED,
    "phi3": GROUPED,
    "falcon": SMALL | {"ffn_hidden_size": 48},
    "olmo2": GROUPED,
    "gpt_oss": GROUPED | {"num_local_experts": 4, "head_dim": 8},
    "deepseek_v2": MLA,
    "deepseek_v3": MLA,
}


def bare(model_type: str, config: dict[str, Any]) -> Any:
    """Make a model in bf16 on the meta device."""
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = transformers.AutoConfig.for_model(model_type, **config)
        return transformers.AutoModelForCausalLM.from_config(made, dtype=torch.bfloat16)


def trained_by_peft(model: Any, **settings: Any) -> dict[str, tuple[tuple[int, ...], int]]:
    """Return shape and bytes of an element of every tensor that peft trains, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # imported here: collecting tests would wait seconds for it
        peft = pytest.importorskip("peft", reason=REASON)
        adapted = peft.get_peft_model(model, peft.LoraConfig(**settings))
    return {
        name.removeprefix("base_model.model.").replace(".default", ""): (
            tuple(parameter.shape),
            parameter.element_size(),
        )
        for name, parameter in adapted.named_parameters()
        if parameter.requires_grad
    }


def trained_by_us(
    model_type: str, config: dict[str, Any], **settings: Any
) -> dict[str, tuple[tuple[int, ...], int]]:
    training = TrainingSettings(precision="pure-16", **settings)
    model = model_from_config({"model_type": model_type, **config})
    n_bytes = scheme_of(training).weight
    return {
        tensor.name.format(layer): (tensor.shape, n_bytes)
        for tensor in adapter_tensors(model, training)
        for layer in (tensor.layers or (0,))
    }


@pytest.mark.parametrize("model_type", CONFIGS)
@pytest.mark.parametrize("rank", [1, 6])
def test_lora_of_all_linear_layers_is_pefts(model_type: str, rank: int) -> None:
    config = CONFIGS[model_type]
    theirs = trained_by_peft(bare(model_type, config), r=rank, target_modules="all-linear")
    ours = trained_by_us(model_type, config, adapter="lora", adapter_rank=rank)
    assert ours == theirs


@pytest.mark.parametrize(
    ("model_type", "targets"),
    [
        ("gpt2", "c_attn,c_proj"),
        ("llama", "q_proj,v_proj"),
        ("llama", "embed_tokens,lm_head,mlp.down_proj"),
        ("qwen2_moe", "k_proj,shared_expert.up_proj"),
        ("phi3", "qkv_proj"),
        ("falcon", "query_key_value,dense"),
        ("deepseek_v3", "kv_b_proj,o_proj"),
    ],
)
def test_lora_of_named_layers_is_pefts(model_type: str, targets: str) -> None:
    config = CONFIGS[model_type]
    theirs = trained_by_peft(bare(model_type, config), r=4, target_modules=targets.split(","))
    ours = trained_by_us(
        model_type, config, adapter="lora", adapter_rank=4, adapter_targets=targets
    )
    if "embed_tokens" in targets:
        # peft stores an embedding's factors under names of their own.
        theirs = {
            name.replace("lora_embedding_A", "lora_A.weight").replace(
                "lora_embedding_B", "lora_B.weight"
            ): value
            for name, value in theirs.items()
        }
    assert ours == theirs


@pytest.mark.parametrize("model_type", ["gpt2", "llama", "phi3", "qwen2"])
def test_dora_is_pefts(model_type: str) -> None:
    config = CONFIGS[model_type]
    theirs = trained_by_peft(
        bare(model_type, config), r=4, target_modules="all-linear", use_dora=True
    )
    ours = trained_by_us(model_type, config, adapter="dora", adapter_rank=4)
    assert {
        name.replace("vector.weight", "vector"): value for name, value in theirs.items()
    } == ours
