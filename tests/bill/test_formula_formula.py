from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.bill.formula import Formula, evaluate, names_in
from tokmill.errors import TokmillError

CACHE = Formula("KV cache", "2 * L * k * h * s * b * q", "a paper")
LLAMA_2_7B = {"L": 32, "k": 32, "h": 128, "s": 4096, "b": 1, "q": 2}


def test_a_line_holds_the_amount_its_formula_and_the_symbols_that_it_uses():
    line = CACHE.line({**LLAMA_2_7B, "V": 32000})
    assert line.n_bytes == line.low_bytes == line.high_bytes == 2 << 30
    assert line.formula == CACHE.expression
    assert line.symbols == LLAMA_2_7B


def test_bounds_never_lie_on_the_wrong_side_of_the_amount():
    line = CACHE.line(LLAMA_2_7B, low_bytes=3 << 30, high_bytes=1 << 30)
    assert (line.low_bytes, line.high_bytes) == (line.n_bytes, line.n_bytes)
    line = CACHE.line(LLAMA_2_7B, low_bytes=1 << 30, high_bytes=3 << 30)
    assert (line.low_bytes, line.high_bytes) == (1 << 30, 3 << 30)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2 + 3 * 4", 14),
        ("(2 + 3) * 4", 20),
        ("7 / 2", 3.5),
        ("7 // 2", 3),
        ("2 ** 10 - 1", 1023),
        ("min(3, 5) + max(3, 5)", 8),
        ("ceil(7 / 2)", 4),
        ("x * y", 21),
    ],
)
def test_arithmetic_is_pythons(expression, value):
    assert evaluate(expression, {"x": 3, "y": 7}) == value


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.integers(1, 2**30))
def test_whole_numbers_of_any_size_stay_exact(x, y, z):
    assert evaluate("x * y + y // z", {"x": x, "y": y, "z": z}) == x * y + y // z


def test_half_a_byte_is_rounded():
    assert Formula("NF4", "0.5625 * P", "a paper").evaluate({"P": 3}) == 2


def test_a_symbol_without_a_value_is_named():
    with pytest.raises(TokmillError, match="formula: cannot evaluate y; known: x"):
        evaluate("x + y", {"x": 1})


@pytest.mark.parametrize(
    "expression", ["__import__('os')", "x.real", "[1]", "x if x else 1", "'a'"]
)
def test_nothing_but_arithmetic_is_evaluated(expression):
    with pytest.raises(TokmillError, match="cannot evaluate"):
        evaluate(expression, {"x": 1})


def test_symbols_are_listed_in_the_order_of_the_text_without_functions():
    assert names_in("max(b * s, 16) * q + b") == ("b", "s", "q")


@pytest.mark.parametrize(
    "expression", ["(x - y) * 2 + max(x, min(y, 7), 1)", "ceil(x / 3) ** 2 // (y + 1) - x * y"]
)
def test_an_expression_is_evaluated_anew_for_the_symbols_of_each_call(expression):
    names = {"max": max, "min": min, "ceil": math.ceil}
    for x, y in ((1, 2), (10, 0), (2.5, 9)):
        assert evaluate(expression, {"x": x, "y": y}) == eval(expression, names, {"x": x, "y": y})
    with pytest.raises(TokmillError, match=r"cannot evaluate y; known: x$"):
        evaluate(expression, {"x": 1})
    assert evaluate(expression, {"x": 1, "y": 2}) == eval(expression, names, {"x": 1, "y": 2})
