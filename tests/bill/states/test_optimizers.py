"""Sizes of real optimizers' states are held against ours in tests/oracles."""

from __future__ import annotations

from typing import Any

import pytest

from tokmill.bill.formula import Line
from tokmill.bill.models.load import load_model
from tokmill.bill.states.optimizers import optimizer_lines
from tokmill.bill.states.parallel import RankTensor, rank_tensors
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings

GPT2 = 124_439_808
EMBEDDING = 50_257 * 768
VECTORS = 12 * (4 * 768 + 2304 + 768 + 3072 + 768) + 2 * 768


def of_gpt2(**settings: Any) -> tuple[tuple[RankTensor, ...], TrainingSettings]:
    training = TrainingSettings(**settings)
    return rank_tensors(load_model(ModelSettings(name="gpt2")), training), training


def kept(**settings: Any) -> tuple[Line, ...]:
    return optimizer_lines(*of_gpt2(**settings), 1)


def summed(lines: tuple[Line, ...]) -> int:
    return sum(line.n_bytes for line in lines)


def named(lines: tuple[Line, ...]) -> dict[str, int]:
    return {line.name: line.n_bytes for line in lines}


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
    assert summed(kept(optimizer=optimizer)) == n_bytes


def test_adafactor_keeps_rows_and_columns_of_matrices_in_fp32() -> None:
    layer = (768 + 2304) + (768 + 768) + 2 * (768 + 3072)
    tables = (50_257 + 768) + (1024 + 768)
    expected = 4 * (12 * layer + tables + VECTORS)
    assert summed(kept(optimizer="adafactor")) == expected
    assert summed(kept(optimizer="adafactor", precision="pure-16")) == expected


def test_muon_keeps_one_moment_of_matrices_in_layers_and_two_of_all_else() -> None:
    matrices = 12 * 12 * 768**2
    assert summed(kept(optimizer="muon")) == 4 * (matrices + 2 * (GPT2 - matrices))


def test_muon_keeps_two_moments_of_an_untied_head() -> None:
    training = TrainingSettings(optimizer="muon")
    tensors = rank_tensors(load_model(ModelSettings(name="llama-2-7b")), training)
    matrices = 32 * (4 * 4096**2 + 3 * 4096 * 11_008)
    lines = optimizer_lines(tensors, training, 1)
    assert summed(lines) == 4 * (matrices + 2 * (6_738_415_616 - matrices))


def test_8_bit_adamw_leaves_embeddings_and_small_tensors_in_32_bit() -> None:
    lines = kept(optimizer="adamw-8bit", precision="pure-16")
    tables = EMBEDDING + 1024 * 768
    small = VECTORS
    matrices = GPT2 - tables - small
    assert named(lines) == {
        "first moment": 4 * (tables + small),
        "second moment": 4 * (tables + small),
        "first moment in 8 bit": matrices,
        "second moment in 8 bit": matrices,
        "scales of 8-bit blocks": 2 * matrices * 4 // 256,
    }
    low = sum(line.low_bytes for line in lines)
    assert low == 2 * ((GPT2 - small) * (1 + 4 / 256) + 4 * small)


@pytest.mark.parametrize(
    ("precision", "of_a_parameter"),
    [("fp32", 8), ("pure-16", 4), ("mixed-16", 12), ("mixed-20", 16), ("bf16-states", 4)],
)
def test_copies_of_a_scheme_are_kept_with_the_moments(precision: str, of_a_parameter: int) -> None:
    assert summed(kept(precision=precision)) == of_a_parameter * GPT2


def test_every_state_of_a_scheme_and_an_optimizer_has_a_line_of_its_own() -> None:
    assert named(kept(precision="mixed-20")) == {
        "fp32 copy of the weights": 4 * GPT2,
        "fp32 copy of the gradients": 4 * GPT2,
        "first moment": 4 * GPT2,
        "second moment": 4 * GPT2,
    }
    assert list(named(kept(optimizer="momentum"))) == ["momentum"]
    assert list(named(kept(optimizer="adafactor"))) == ["second moment", "row and column factors"]
    assert list(named(kept(optimizer="muon"))) == ["momentum", "first moment", "second moment"]
    assert kept(optimizer="sgd") == ()
