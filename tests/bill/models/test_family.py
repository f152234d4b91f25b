"""Values of a configuration: their types, shapes and windows, and the errors of wrong ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tokmill.bill.models.families import KNOWN
from tokmill.bill.models.families.decoders import windows
from tokmill.bill.models.family import Fields, read_shape
from tokmill.errors import UsageError


def fields(**values: Any) -> Fields:
    return Fields(values, KNOWN["gpt2"], "my", "my/config.json", {"hidden_size": "n_embd"})


@pytest.mark.parametrize("wrong", [0, -3, 2.0, "8", True, [8], 1 << 32])
def test_a_count_is_a_whole_number_of_at_least_one(wrong: object) -> None:
    with pytest.raises(UsageError, match=r"n_embd: expected a whole number from 1 to \d+, found"):
        fields(hidden_size=wrong).count("hidden_size")


def test_layers_without_end_are_refused_before_they_fill_memory() -> None:
    with pytest.raises(UsageError, match="from 1 to 10000, found 10001"):
        fields(num_hidden_layers=10_001).count("num_hidden_layers")


@pytest.mark.parametrize(
    ("read", "wrong", "expected"),
    [
        (lambda f: f.size("x"), -1, "a whole number from 0"),
        (lambda f: f.flag("x"), "yes", "true or false"),
        (lambda f: f.text("x"), 3, "a string"),
        (lambda f: f.share("x"), 1.5, "a number from 0 to 1"),
        (lambda f: f.share("x"), True, "a number from 0 to 1"),
        (lambda f: f.items("x", str), ["a", 1], "a list of str"),
        (lambda f: f.items("x", int), [True], "a list of int"),
        (lambda f: f.table("x"), [1], "an object"),
    ],
)
def test_a_value_of_another_type_says_what_was_expected(
    read: Any, wrong: object, expected: str
) -> None:
    with pytest.raises(UsageError, match=f"^my/config.json: x: expected {expected}"):
        read(fields(x=wrong))


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(UsageError) as error:
        fields(x="y" * 5000).flag("x")
    assert len(str(error.value)) < 120


SIZES = {
    "num_hidden_layers": 4, "hidden_size": 24, "num_attention_heads": 4, "intermediate_size": 9,
    "vocab_size": 50,
}  # fmt: skip


def sized(**values: Any) -> Fields:
    return Fields({**SIZES, **values}, KNOWN["llama"], "", "config.json")


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(
        UsageError, match="num_attention_heads 4 is not a multiple of num_key_value_heads 3"
    ):
        read_shape(sized(num_key_value_heads=3))
    with pytest.raises(
        UsageError, match="hidden_size 26 is not a multiple of num_attention_heads 4"
    ):
        read_shape(sized(hidden_size=26))
    assert read_shape(sized(hidden_size=26, head_dim=6)).query_width == 24


@pytest.mark.parametrize("wrong", [["full_attention"], ["full_attention", "linear_attention"]])
def test_layer_types_that_are_unknown_or_of_another_number_are_refused(wrong: list[str]) -> None:
    with pytest.raises(UsageError, match="layer_types: expected 2 of full_attention or sliding"):
        windows(replace(sized(layer_types=wrong, sliding_window=9), family=KNOWN["olmo3"]), 2)
