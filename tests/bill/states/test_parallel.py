from __future__ import annotations

from typing import Any

import pytest

from tokmill.bill.models.load import load_model
from tokmill.bill.models.model import Model
from tokmill.bill.states.parallel import (
    RankTensor,
    count_among,
    data_parallel,
    rank_tensors,
    ranks_per_node,
    stage_layers,
    state_ranks,
)
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings


def named(name: str) -> Model:
    return load_model(ModelSettings(name=name))


def by_name(model: Model, **settings: Any) -> dict[str, RankTensor]:
    tensors = rank_tensors(model, TrainingSettings(**settings))
    return {held.tensor.name.removeprefix("model.layers.{}."): held for held in tensors}


def test_one_gpu_works_on_the_whole_model() -> None:
    tensors = rank_tensors(named("gpt2"), TrainingSettings())
    assert count_among(tensors, 1) == 124_439_808
    assert all(held.trained and held.weight_bytes == 4 for held in tensors)


def test_ranks_that_hold_the_same_are_data_and_context_parallel() -> None:
    training = TrainingSettings(gpus=64, tensor_parallel=4, pipeline_parallel=2, context_parallel=2)
    assert (state_ranks(training), data_parallel(training)) == (8, 4)


@pytest.mark.parametrize(
    ("settings", "ranks"),
    [({"gpus": 4}, 4), ({"gpus": 64}, 8), ({"gpus": 64, "gpus_per_node": 4}, 4)],
)
def test_a_machine_has_eight_ranks_unless_said(settings: dict[str, int], ranks: int) -> None:
    assert ranks_per_node(TrainingSettings(**settings)) == ranks


def test_tensor_parallelism_splits_matrices_and_ids_and_repeats_norms() -> None:
    held = by_name(named("llama-3-8b"), gpus=4, tensor_parallel=4)
    assert held["self_attn.q_proj.weight"].shape == (1024, 4096)
    assert held["self_attn.k_proj.weight"].shape == (256, 4096)
    assert held["self_attn.o_proj.weight"].shape == (4096, 1024)
    assert held["mlp.down_proj.weight"].shape == (4096, 3584)
    assert held["input_layernorm.weight"].shape == (4096,)
    assert held["model.embed_tokens.weight"].shape == (32_064, 4096)
    assert held["lm_head.weight"].shape == (32_064, 4096)


def test_fewer_key_value_heads_than_gpus_stand_on_several() -> None:
    held = by_name(named("llama-3-8b"), gpus=16, tensor_parallel=16)
    assert held["self_attn.q_proj.weight"].shape == (256, 4096)
    assert held["self_attn.k_proj.weight"].shape == (128, 4096)
    assert held["self_attn.v_proj.weight"].shape == (128, 4096)


def test_a_fused_projection_of_fewer_key_value_heads_holds_whole_ones() -> None:
    tensors = rank_tensors(named("falcon-7b"), TrainingSettings())
    (fused,) = [h for h in tensors if h.tensor.name.endswith("query_key_value.weight")]
    assert fused.shape == ((71 + 2) * 64, 4544)
    split = rank_tensors(named("falcon-7b"), TrainingSettings(gpus=71, tensor_parallel=71))
    (fused,) = [h for h in split if h.tensor.name.endswith("query_key_value.weight")]
    assert fused.shape == (3 * 64, 4544)


def test_a_matrix_stored_transposed_is_split_by_the_same_features() -> None:
    tensors = rank_tensors(named("gpt2"), TrainingSettings(gpus=2, tensor_parallel=2))
    shapes = {held.tensor.name.rsplit("{}.")[-1]: held.shape for held in tensors}
    assert shapes["mlp.c_fc.weight"] == (768, 1536)
    assert shapes["mlp.c_fc.bias"] == (1536,)
    assert shapes["mlp.c_proj.weight"] == (1536, 768)
    assert shapes["mlp.c_proj.bias"] == (768,)
    assert shapes["transformer.wpe.weight"] == (1024, 768)
    assert shapes["transformer.wte.weight"] == (25_129, 768)  # half of 50,257, rounded up


def test_expert_parallel_ranks_hold_whole_experts_and_share_all() -> None:
    held = by_name(named("mixtral-8x7b"), gpus=8, expert_parallel=4)["mlp.experts.down_proj"]
    assert held.shape == (2, 4096, 14_336)
    assert held.among(1).shape == (2, 4096, 14_336)
    assert held.among(8).shape == (8, 4096, 14_336)


def test_experts_are_split_inside_by_tensor_parallelism() -> None:
    held = by_name(named("mixtral-8x7b"), gpus=2, tensor_parallel=2)
    assert held["mlp.experts.gate_up_proj"].shape == (8, 14_336, 4096)
    assert held["mlp.experts.down_proj"].shape == (8, 4096, 7168)


@pytest.mark.parametrize(
    ("stages", "stage", "layers"), [(1, 0, 7), (2, 0, 4), (2, 1, 3), (3, 0, 3), (3, 2, 2)]
)
def test_the_first_stages_hold_the_layers_that_do_not_divide(
    stages: int, stage: int, layers: int
) -> None:
    model = load_model(
        ModelSettings(family="plain", layers=7, hidden=8, heads=2, vocabulary=16, positions=16)
    )
    training = TrainingSettings(gpus=stages, pipeline_parallel=stages)
    assert len(stage_layers(model, training, stage)) == layers


def test_stages_hold_every_layer_once() -> None:
    model = named("llama-3-8b")
    for chunks in (1, 2):
        training = TrainingSettings(gpus=4, pipeline_parallel=4, virtual_stages=chunks)
        held = [layer for stage in range(4) for layer in stage_layers(model, training, stage)]
        assert sorted(held) == list(range(32))
    assert stage_layers(model, training, 1) == (4, 5, 6, 7, 20, 21, 22, 23)


def test_the_fullest_stage_of_untied_ends_is_the_first() -> None:
    held = by_name(named("llama-2-7b"), gpus=2, pipeline_parallel=2)
    assert held["mlp.up_proj.weight"].layers == tuple(range(16))
    assert "model.embed_tokens.weight" in held
    assert "lm_head.weight" not in held


def test_positions_make_the_first_stage_of_a_tied_model_fuller_than_the_copy_at_the_end() -> None:
    names = set(by_name(named("gpt2"), gpus=2, pipeline_parallel=2))
    assert {"transformer.wte.weight", "transformer.wpe.weight"} <= names
    assert "transformer.ln_f.weight" not in names


def test_the_fullest_stage_of_a_mixture_is_not_the_one_of_dense_layers() -> None:
    held = by_name(named("deepseek-v3"), gpus=16, pipeline_parallel=16)
    assert held["mlp.experts.down_proj"].layers == (4, 5, 6, 7)
    assert "model.embed_tokens.weight" not in held


def test_adapters_are_trained_and_the_base_is_not() -> None:
    held = by_name(named("llama-2-7b"), adapter="lora", weights="nf4", adapter_targets="q_proj")
    assert not held["self_attn.q_proj.weight"].trained
    assert held["self_attn.q_proj.lora_A.weight"].trained
    assert held["self_attn.q_proj.weight"].weight_bytes == 0.5625
    assert held["self_attn.q_proj.lora_A.weight"].weight_bytes == 4
    assert held["lm_head.weight"].weight_bytes == 2
    assert held["input_layernorm.weight"].weight_bytes == 2


def test_an_adapter_of_a_split_matrix_is_split_on_one_side() -> None:
    held = by_name(
        named("llama-2-7b"), gpus=2, tensor_parallel=2, adapter="lora", adapter_targets="q_proj"
    )
    assert held["self_attn.q_proj.lora_A.weight"].shape == (16, 4096)
    assert held["self_attn.q_proj.lora_B.weight"].shape == (2048, 16)
