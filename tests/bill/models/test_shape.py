"""Shapes, buffers of rotary positions, and windows."""

from __future__ import annotations

from typing import Any

import pytest

from tokmill.bill.models.family import Fields
from tokmill.bill.models.registry import family
from tokmill.bill.models.shape import (
    all_windows,
    read_shape,
    rotary_bytes,
    typed_windows,
)
from tokmill.errors import UsageError

SIZES = {
    "num_hidden_layers": 4, "hidden_size": 24, "num_attention_heads": 4, "intermediate_size": 9,
    "vocab_size": 50,
}  # fmt: skip


def fields(**values: Any) -> Fields:
    return Fields({**SIZES, **values}, family("llama"), "", "config.json")


def test_key_value_heads_and_head_size_default_to_equal_shares() -> None:
    s = read_shape(fields())

    assert (s.kv_heads, s.head_dim, s.query_width, s.kv_width) == (4, 6, 24, 24)


def test_a_head_can_have_a_size_of_its_own() -> None:
    s = read_shape(fields(head_dim=10, num_key_value_heads=2))

    assert (s.query_width, s.kv_width) == (40, 20)


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(
        UsageError, match="num_attention_heads 4 is not a multiple of num_key_value_heads 3"
    ):
        read_shape(fields(num_key_value_heads=3))
    with pytest.raises(
        UsageError, match="hidden_size 26 is not a multiple of num_attention_heads 4"
    ):
        read_shape(fields(hidden_size=26))
    assert read_shape(fields(hidden_size=26, head_dim=6)).query_width == 24


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, 2 * 4 * 5),
        ({"partial_rotary_factor": 0.5}, 2 * 4 * 3),
        ({"partial_rotary_factor": 0.5, "rope_scaling": {"partial_rotary_factor": 0.2}}, 2 * 4),
        ({"rope_parameters": {"partial_rotary_factor": 0.2}, "rope_scaling": None}, 2 * 4),
    ],
)
def test_rotary_buffers_hold_a_value_per_pair_twice(config: dict[str, Any], expected: int) -> None:
    assert rotary_bytes(fields(**config), 10) == expected


@pytest.mark.parametrize("share", [float("nan"), 1e308, -0.5, "half", True])
def test_a_wrong_rotated_share_is_refused_in_every_place(share: object) -> None:
    for config in ({"rope_scaling": {"partial_rotary_factor": share}},
                   {"partial_rotary_factor": share}):  # fmt: skip
        with pytest.raises(UsageError, match="partial_rotary_factor: expected a number from 0 to"):
            rotary_bytes(fields(**config), 10)


def test_one_window_holds_for_all_layers_or_none() -> None:
    assert all_windows(fields(sliding_window=7), 3) == (7, 7, 7)
    assert all_windows(fields(sliding_window=None), 3) == ()


def test_layer_types_win_over_the_rule_of_the_family() -> None:
    types = ["full_attention", "sliding_attention"]

    assert typed_windows(fields(sliding_window=7), 2, lambda i: i == 0) == (7, 0)
    assert typed_windows(fields(sliding_window=7, layer_types=types), 2, lambda i: i == 0) == (0, 7)
    assert typed_windows(fields(layer_types=types), 2, lambda i: i == 0) == ()


@pytest.mark.parametrize("wrong", [["full_attention"], ["full_attention", "linear_attention"]])
def test_layer_types_that_are_unknown_or_of_another_number_are_refused(wrong: list[str]) -> None:
    with pytest.raises(UsageError, match="layer_types: expected 2 of full_attention or sliding"):
        typed_windows(fields(layer_types=wrong), 2, bool)
