"""Shapes, buffers of rotary positions, and windows."""

from __future__ import annotations

from typing import Any

import pytest

from tokmill.bill.models.families import KNOWN
from tokmill.bill.models.family import Fields, read_shape, typed_windows
from tokmill.errors import UsageError

SIZES = {
    "num_hidden_layers": 4, "hidden_size": 24, "num_attention_heads": 4, "intermediate_size": 9,
    "vocab_size": 50,
}  # fmt: skip


def fields(**values: Any) -> Fields:
    return Fields({**SIZES, **values}, KNOWN["llama"], "", "config.json")


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


@pytest.mark.parametrize("wrong", [["full_attention"], ["full_attention", "linear_attention"]])
def test_layer_types_that_are_unknown_or_of_another_number_are_refused(wrong: list[str]) -> None:
    with pytest.raises(UsageError, match="layer_types: expected 2 of full_attention or sliding"):
        typed_windows(fields(layer_types=wrong), 2, bool)
