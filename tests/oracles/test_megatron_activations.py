"""The tensors that autograd saves of megatron-core's layers, beside the rows of the bill."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tokmill.bill.activations.megatron import megatron_parts
from tokmill.bill.activations.part import summed
from tokmill.bill.activations.situation import activation_symbols, situation
from tokmill.bill.formula import evaluate
from tokmill.bill.models.load import model_from_config
from tokmill.settings.training import TrainingSettings

CHILD = Path(__file__).with_name("megatron_layer.py")
pytestmark = pytest.mark.skipif(
    not (importlib.util.find_spec("torch") and importlib.util.find_spec("megatron")),
    reason="the oracle is not installed: make oracles",
)

SHAPE = {"hidden_size": 128, "num_attention_heads": 8}
PLAIN = {**SHAPE, "ffn_hidden_size": 512}
GATED = {
    **PLAIN, "gated_linear_unit": True, "add_bias_linear": False, "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
}  # fmt: skip
MIXTURE = {
    **GATED, "num_moe_experts": 8, "moe_ffn_hidden_size": 96, "moe_aux_loss_coeff": 0.01,
    "moe_router_load_balancing_type": "aux_loss",
}  # fmt: skip
LATENT = {
    "multi_latent_attention": True, "q_lora_rank": 56, "kv_lora_rank": 32, "qk_head_dim": 16,
    "qk_pos_emb_head_dim": 8, "v_head_dim": 16, "rope_type": "rope",
}  # fmt: skip

GPT = {"n_layer": 1, "n_embd": 128, "n_head": 8, "n_inner": 512, "vocab_size": 64}
LLAMA = {
    **SHAPE, "num_hidden_layers": 1, "intermediate_size": 512, "vocab_size": 64,
    "num_key_value_heads": 8,
}  # fmt: skip
MIXTRAL = {**LLAMA, "intermediate_size": 96, "num_local_experts": 8}
DEEPSEEK = {
    **LLAMA, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 96,
    "n_shared_experts": 1, "first_k_dense_replace": 0, "q_lora_rank": 56, "kv_lora_rank": 32,
    "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16,
}  # fmt: skip


LAYERS = {
    "GPT": (PLAIN, {"model_type": "gpt2", **GPT}),
    "gated": (GATED, {"model_type": "llama", **LLAMA}),
    "two experts": (MIXTURE | {"moe_router_topk": 2}, {"model_type": "mixtral", **MIXTRAL}),
    "four experts": (
        MIXTURE | {"moe_router_topk": 4},
        {"model_type": "mixtral", **MIXTRAL, "num_experts_per_tok": 4},
    ),
    "latent attention, shared expert": (
        MIXTURE | LATENT | {"moe_router_topk": 2, "moe_shared_expert_intermediate_size": 96},
        {"model_type": "deepseek_v3", **DEEPSEEK},
    ),
}


FROZEN = ("GPT", "gated", "two experts")
"""Layers that are also compared as the frozen base of adapters, which are left out."""


@pytest.fixture(scope="module")
def saved() -> dict[str, float]:
    """Bytes that autograd saves of a token, by layer; of frozen ones too."""
    asked = {name: {"config": theirs} for name, (theirs, _) in LAYERS.items()}
    asked |= {f"{name}, frozen": {"config": LAYERS[name][0], "frozen": True} for name in FROZEN}
    arguments = json.dumps(list(asked.values()))
    done = subprocess.run(
        [sys.executable, str(CHILD), arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(zip(asked, json.loads(done.stdout.splitlines()[-1]), strict=True))


def billed(config: dict[str, Any], **settings: Any) -> float:
    model = model_from_config(config)
    how = {"framework": "megatron", "attention": "eager", "checkpointing": "selective"}
    training = TrainingSettings(sequence=48, **how | settings)
    at = replace(situation(model, training), targets=())
    symbols = activation_symbols(model, training, at)
    return sum(evaluate(summed(part.saved), symbols) for part in megatron_parts(at, training))


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_saves_what_is_billed(layer: str, saved: dict[str, float]) -> None:
    assert billed(LAYERS[layer][1]) == saved[layer]


@pytest.mark.parametrize("layer", FROZEN)
def test_a_frozen_layer_saves_what_is_billed(layer: str, saved: dict[str, float]) -> None:
    assert billed(LAYERS[layer][1], adapter="lora") == saved[f"{layer}, frozen"]
