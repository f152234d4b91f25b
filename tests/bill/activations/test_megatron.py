"""Korthikanti et al. 2022: shares of the tensor-parallel baseline that they publish."""

from __future__ import annotations

from typing import Any

import pytest

from tokmill.bill.activations.layers import CHECKPOINTS
from tokmill.bill.activations.megatron import megatron_parts
from tokmill.bill.activations.part import summed
from tokmill.bill.activations.situation import activation_symbols, situation
from tokmill.bill.formula import evaluate
from tokmill.bill.models.load import load_model, model_from_config
from tokmill.bill.models.model import Model
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings


def gpt(heads: int, hidden: int) -> Model:
    """Return one of their GPT models."""
    return model_from_config(
        {"model_type": "gpt2", "n_layer": 2, "n_embd": hidden, "n_head": heads, "vocab_size": 51200}
    )


def trained(**changed: Any) -> TrainingSettings:
    defaults = {"framework": "megatron", "precision": "mixed-18", "sequence": 2048, "gpus": 8}
    return TrainingSettings(**defaults | changed)


def kept(model: Model, part: str = "", **settings: Any) -> float:
    """Return the bytes of a token in all parts of a layer, or in one."""
    training = trained(**settings)
    at = situation(model, training)
    symbols = activation_symbols(model, training, at)
    found = [p for p in megatron_parts(at, training) if part in ("", p.name)]
    return sum(evaluate(summed(p.saved), symbols) for p in found)


def percent(model: Model, **settings: Any) -> float:
    eager = {"attention": "eager", "tensor_parallel": 8}
    return 100 * kept(model, **eager, **settings) / kept(model, **eager)


MODELS = [(64, 6144), (96, 12288), (128, 20480), (160, 25600)]


@pytest.mark.parametrize(("shape", "published"), list(zip(MODELS, (67, 62, 58, 58), strict=True)))
def test_sequence_parallelism_keeps_the_published_share(
    shape: tuple[int, int], published: int
) -> None:
    assert percent(gpt(*shape), sequence_parallel=True) == pytest.approx(published, abs=1)


@pytest.mark.parametrize(("shape", "published"), list(zip(MODELS, (8, 9, 10, 10), strict=True)))
def test_full_recomputation_keeps_the_published_share(
    shape: tuple[int, int], published: int
) -> None:
    model = gpt(*shape)
    symbols = {"n": 1, "layers_kept": 1, "x": 2, "d": model.hidden, "u": 1}
    inputs = evaluate(CHECKPOINTS.expression, symbols)
    layer = kept(model, attention="eager", tensor_parallel=8)
    assert 100 * inputs / layer == pytest.approx(published, abs=1)


@pytest.mark.parametrize("active", [1, 2, 8])
def test_experts_keep_inputs_and_three_widths_for_each_that_a_token_takes(active: int) -> None:
    model = load_model(ModelSettings(name="mixtral-8x7b", active_experts=active))
    norm, router = 4 * 4096, 7 * 8 + 30 * active
    experts = active * (2 * 4096 + 3 * 2 * 14336)
    assert kept(model, "experts") == norm + router + experts


def test_experts_that_are_not_split_compute_their_ranks_share_of_the_tokens() -> None:
    model = load_model(ModelSettings(name="mixtral-8x7b"))
    split = {"tensor_parallel": 2, "sequence_parallel": True}
    one, two = (kept(model, "experts", expert_tensor_parallel=ranks, **split) for ranks in (1, 2))
    assert two - one == 2 * 2 * 4096 / 2  # inputs: of all tokens, or of half of them
    assert one == kept(model, "experts") / 2


def test_latent_attention_keeps_latents_and_heads() -> None:
    model = load_model(ModelSettings(name="deepseek-v3"))
    latents = 2 * (2 * 1536 + 2 * 512 + 64)
    heads = 2 * 2 * 128 * (128 + 64 + 128)
    assert kept(model, "attention") == 4 * 7168 + latents + heads + 4 * 128


def test_selective_recomputation_keeps_no_statistics_of_flash_attention() -> None:
    model = load_model(ModelSettings(name="llama-3-8b"))
    for attention, inside in {"flash": 4 * 32, "eager": 2 * 32 * 2048}.items():
        every, some = (
            kept(model, "attention", attention=attention, checkpointing=how)
            for how in ("none", "selective")
        )
        assert every - some == inside


@pytest.mark.parametrize(
    ("targets", "attention", "mlp"),
    [
        # Inputs of norms, queries, keys, values, output and statistics; gate and up.
        ("lm_head", 0, 0),
        ("all-linear", 2 * 4096 + 2 * 2 * 16, 2 * 4096 + 2 * 14336 + 2 * 2 * 16),
        ("q_proj,v_proj", 2 * 4096 + 2 * 16, 0),
        ("down_proj", 0, 2 * 14336 + 2 * 16),
    ],
)
def test_frozen_matrices_keep_the_inputs_of_their_adapters_only(
    targets: str, attention: int, mlp: int
) -> None:
    model = load_model(ModelSettings(name="llama-3-8b"))
    adapter = {"adapter": "lora", "adapter_targets": targets}
    heads = 2 * (2 * 32 + 2 * 8) * 128 + 4 * 32
    assert kept(model, "attention", **adapter) == 2 * 4096 + heads + attention
    assert kept(model, "feed-forward", **adapter) == 2 * 4096 + 2 * 2 * 14336 + mlp


def test_an_adapter_behind_a_norm_keeps_the_tokens_of_all_ranks_of_a_split_sequence() -> None:
    model = load_model(ModelSettings(name="llama-3-8b"))
    split = {"tensor_parallel": 2, "sequence_parallel": True}
    without, with_it = (
        kept(model, "attention", adapter="lora", adapter_targets=targets, **split)
        for targets in ("lm_head", "q_proj")
    )
    assert with_it - without == 2 * 4096 + 2 * 16


def test_frozen_experts_keep_the_routers_input_gate_and_up() -> None:
    model = load_model(ModelSettings(name="mixtral-8x7b"))
    frozen = kept(model, "experts", adapter="lora", adapter_targets="q_proj")
    assert frozen == 2 * 4096 + 2 * 4096 + 7 * 8 + 30 * 2 + 2 * 2 * 2 * 14336
