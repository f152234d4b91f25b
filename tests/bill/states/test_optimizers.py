"""Sizes of real optimizers' states are held against ours in tests/oracles."""

from __future__ import annotations

from typing import Any

import pytest

from tokmill.bill.formula import Line
from tokmill.bill.models.load import load_model
from tokmill.bill.states.optimizers import optimizer_line, optimizer_parts, step_line
from tokmill.bill.states.parallel import RankTensor, rank_tensors
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings

GPT2 = 124_439_808
EMBEDDING = 50_257 * 768
VECTORS = 12 * (4 * 768 + 2304 + 768 + 3072 + 768) + 2 * 768


def of_gpt2(**settings: Any) -> tuple[tuple[RankTensor, ...], TrainingSettings]:
    training = TrainingSettings(**settings)
    return rank_tensors(load_model(ModelSettings(name="gpt2")), training), training


def kept(**settings: Any) -> Line:
    return optimizer_line(*of_gpt2(**settings), 1)


def taken(**settings: Any) -> int:
    return step_line(*of_gpt2(**settings), 1).n_bytes


@pytest.mark.parametrize(
    ("optimizer", "n_bytes"),
    [
        ("sgd", 0),
        ("momentum", 4 * GPT2),
        ("lion", 4 * GPT2),
        ("adamw", 8 * GPT2),
        ("adam", 8 * GPT2),
    ],
)
def test_an_optimizer_keeps_moments_of_every_parameter(optimizer: str, n_bytes: int) -> None:
    assert kept(optimizer=optimizer).n_bytes == n_bytes


def test_adafactor_keeps_rows_and_columns_of_matrices_in_fp32() -> None:
    layer = (768 + 2304) + (768 + 768) + 2 * (768 + 3072)
    tables = (50_257 + 768) + (1024 + 768)
    expected = 4 * (12 * layer + tables + VECTORS)
    assert kept(optimizer="adafactor").n_bytes == expected
    assert kept(optimizer="adafactor", precision="pure-16").n_bytes == expected


def test_muon_keeps_one_moment_of_matrices_in_layers_and_two_of_all_else() -> None:
    matrices = 12 * 12 * 768**2
    assert kept(optimizer="muon").n_bytes == 4 * (matrices + 2 * (GPT2 - matrices))


def test_muon_keeps_two_moments_of_an_untied_head() -> None:
    training = TrainingSettings(optimizer="muon")
    tensors = rank_tensors(load_model(ModelSettings(name="llama-2-7b")), training)
    matrices = 32 * (4 * 4096**2 + 3 * 4096 * 11_008)
    line = optimizer_line(tensors, training, 1)
    assert line.n_bytes == 4 * (matrices + 2 * (6_738_415_616 - matrices))


def test_8_bit_adamw_leaves_embeddings_and_small_tensors_in_32_bit() -> None:
    line = kept(optimizer="adamw-8bit", precision="pure-16")
    tables = EMBEDDING + 1024 * 768
    small = VECTORS
    assert line.n_bytes == 2 * ((GPT2 - tables - small) * (1 + 4 / 256) + 4 * (tables + small))
    assert line.low_bytes == 2 * ((GPT2 - small) * (1 + 4 / 256) + 4 * small)


@pytest.mark.parametrize(
    ("precision", "of_a_parameter"),
    [("fp32", 8), ("pure-16", 4), ("mixed-16", 12), ("mixed-20", 16), ("bf16-states", 4)],
)
def test_copies_of_a_scheme_are_kept_with_the_moments(precision: str, of_a_parameter: int) -> None:
    assert kept(precision=precision).n_bytes == of_a_parameter * GPT2


@pytest.mark.parametrize("optimizer", ["adamw", "muon", "adafactor", "adamw-8bit", "sgd"])
@pytest.mark.parametrize("precision", ["fp32", "pure-16", "mixed-20"])
def test_the_parts_add_up(optimizer: str, precision: str) -> None:
    held = of_gpt2(optimizer=optimizer, precision=precision)
    parts = optimizer_parts(*held, 1)
    assert sum(part.n_bytes for part in parts) == optimizer_line(*held, 1).n_bytes
    assert all(part.n_bytes for part in parts)


def test_the_parts_of_mixed_precision_are_named() -> None:
    parts = optimizer_parts(*of_gpt2(precision="mixed-20"), 1)
    assert [(part.name, part.n_bytes // GPT2) for part in parts] == [
        ("fp32 copy of the weights", 4),
        ("fp32 copy of the gradients", 4),
        ("first moment", 4),
        ("second moment", 4),
    ]


def test_gpt2_in_fp32_takes_20_bytes_a_parameter_at_a_foreach_step() -> None:
    assert 16 * GPT2 + taken(precision="fp32") == 20 * GPT2


def test_gpt2_in_fp32_takes_18_48_bytes_a_parameter_at_a_for_loop_step() -> None:
    peak = 16 * GPT2 + taken(precision="fp32", optimizer_step="for-loop")
    assert round(peak / GPT2, 2) == 18.48


@pytest.mark.parametrize(
    ("settings", "n_bytes"),
    [
        ({"optimizer_step": "fused"}, 0),
        ({"precision": "pure-16"}, 2 * GPT2),
        ({"precision": "bf16-states"}, 2 * GPT2),
        ({"optimizer": "sgd"}, 0),
        ({"optimizer": "momentum"}, 0),
        ({"optimizer": "adamw-8bit"}, 0),
        ({"optimizer": "lion"}, 2 * 4 * EMBEDDING),
        ({"optimizer": "lion", "optimizer_step": "fused"}, 0),
        ({"optimizer": "adafactor"}, 2 * 4 * EMBEDDING),
        ({"optimizer": "adafactor", "precision": "pure-16"}, 4 * 4 * EMBEDDING),
        ({"optimizer": "adafactor", "precision": "mixed-16"}, 2 * 4 * EMBEDDING),
        ({"optimizer": "muon"}, 4 * (EMBEDDING + 1024 * 768 + VECTORS)),
        ({"optimizer": "muon", "optimizer_step": "fused"}, 8 * 768 * 3072 + 4 * 768**2),
    ],
)
def test_a_step_takes_what_its_optimizer_copies(settings: dict[str, Any], n_bytes: int) -> None:
    assert taken(**settings) == n_bytes


def test_a_step_on_a_shard_takes_a_share() -> None:
    held = of_gpt2(sharding="fsdp", gpus=4)
    assert step_line(*held, 4).n_bytes == GPT2
    held = of_gpt2(sharding="fsdp", gpus=4, optimizer_step="for-loop")
    assert step_line(*held, 4).n_bytes == 2 * EMBEDDING


def test_zero_steps_on_one_flat_tensor() -> None:
    held = of_gpt2(sharding="zero-1", gpus=4, optimizer_step="for-loop")
    assert step_line(*held, 4).n_bytes == 2 * GPT2
