"""Gradients and casts of weights at a moment of backward, on a model of few elements."""

from __future__ import annotations

import pytest

from tokmill.bill.activations.layers import layer_parts
from tokmill.bill.activations.situation import situation
from tokmill.bill.activations.weights import casts_lines, gradients_line, made_before, stay
from tokmill.bill.models.load import load_model
from tokmill.bill.states.states import rank_states
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings

MODEL = load_model(
    ModelSettings(
        family="llama", layers=3, hidden=8, heads=2, kv_heads=2, head_dim=4, ffn=16, vocabulary=10
    )
)
LAYER = 4 * 8 * 8 + 3 * 8 * 16 + 2 * 8
HEAD = 10 * 8
NORM = 8


def made(at: int, *, first: bool) -> int:
    training = TrainingSettings(sequence=4)
    parts = layer_parts(situation(MODEL, training))
    return made_before(rank_states(MODEL, training), parts, at, first=first)


def test_before_the_last_layers_feed_forward_head_norm_and_last_matrix_are_made() -> None:
    assert made(1, first=False) == HEAD + NORM + 8 * 16


def test_before_its_attention_the_whole_feed_forward_layer_is_made() -> None:
    assert made(0, first=False) == HEAD + NORM + 3 * 8 * 16 + 8 * 8


def test_before_the_first_layer_all_others_are_made() -> None:
    assert made(1, first=True) == HEAD + NORM + 2 * LAYER + 8 * 16


def test_gradients_that_stay_are_there_from_the_start() -> None:
    once, often = (TrainingSettings(sequence=4, accumulation=n) for n in (1, 2))
    assert (stay(once), stay(often)) == (False, True)
    assert gradients_line(rank_states(MODEL, once), once, 0).n_bytes == 0
    assert gradients_line(rank_states(MODEL, often), often, 0).n_bytes == 4 * MODEL.parameters


def test_casts_are_those_of_some_layers_and_of_the_head() -> None:
    states = rank_states(MODEL, TrainingSettings(sequence=4, precision="amp"))
    matrices = LAYER - 2 * 8
    (line,) = casts_lines(MODEL, states, 2, of=3, head=True)
    assert line.n_bytes == 2 * (2 * matrices + HEAD)
    (line,) = casts_lines(MODEL, states, 1, of=3, head=False)
    assert line.n_bytes == 2 * matrices


def test_nothing_is_cast_without_autocast() -> None:
    states = rank_states(MODEL, TrainingSettings(sequence=4, precision="fp32"))
    assert casts_lines(MODEL, states, 3, of=3, head=True) == ()


@pytest.mark.parametrize(("base", "in_head"), [("bf16", 0), ("nf4", 0), ("fp32", HEAD)])
def test_a_frozen_head_is_cast_only_from_fp32(base: str, in_head: int) -> None:
    lora = TrainingSettings(sequence=4, precision="amp", adapter="lora", weights=base)
    states = rank_states(MODEL, lora)
    with_head, without = (
        casts_lines(MODEL, states, 3, of=3, head=head)[0].n_bytes for head in (True, False)
    )
    assert with_head - without == 2 * in_head
