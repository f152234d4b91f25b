from __future__ import annotations

import pytest

from tokmill.bill.formula import Formula, evaluate
from tokmill.errors import TokmillError

CACHE = Formula("KV cache", "2 * L * k * h * s * b * q", "a paper")
LLAMA_2_7B = {"L": 32, "k": 32, "h": 128, "s": 4096, "b": 1, "q": 2}


def test_bounds_never_lie_on_the_wrong_side_of_the_amount():
    line = CACHE.line(LLAMA_2_7B, low_bytes=3 << 30, high_bytes=1 << 30)
    assert (line.low_bytes, line.high_bytes) == (line.n_bytes, line.n_bytes)
    line = CACHE.line(LLAMA_2_7B, low_bytes=1 << 30, high_bytes=3 << 30)
    assert (line.low_bytes, line.high_bytes) == (1 << 30, 3 << 30)


def test_a_symbol_without_a_value_is_named():
    with pytest.raises(TokmillError, match="formula: cannot evaluate y; known: x"):
        evaluate("x + y", {"x": 1})


@pytest.mark.parametrize(
    "expression", ["__import__('os')", "x.real", "[1]", "x if x else 1", "'a'"]
)
def test_nothing_but_arithmetic_is_evaluated(expression):
    with pytest.raises(TokmillError, match="cannot evaluate"):
        evaluate(expression, {"x": 1})
