"""Formulas that are evaluated as they are printed, lines of a bill, and bills.

A `Formula` is declared once, as a constant beside the code that uses it. `Formula.line` returns the
amount with the values of its symbols, so that every number of a bill can be recomputed by hand.
 docs/formulas.md lists all formulas (`bill.text.formulas`).
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any, NoReturn

from tokmill.errors import TokmillError

_BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}
_FUNCTIONS: dict[str, Callable[..., float]] = {"min": min, "max": max, "ceil": math.ceil}
_Function = Callable[[Mapping[str, float]], float]


@dataclass(frozen=True, slots=True)
class Line:
    """An amount of memory with its bounds and its formula.

    `formula` evaluated over `symbols` gives `n_bytes` (rounded). `low_bytes` <= `n_bytes` <=
    `high_bytes`. `source` and `error` are those of the `Formula`.
    """

    name: str
    n_bytes: int
    low_bytes: int
    high_bytes: int
    formula: str
    symbols: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    source: str = ""
    error: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the line as plain values."""
        values = asdict(self)
        return {"name": values.pop("name"), "bytes": values.pop("n_bytes"), **values}


@dataclass(frozen=True, slots=True)
class Formula:
    """The formula of an amount: Python arithmetic over the symbols of `bill.text.formulas`.

    `source` says where it comes from, `error` what is known about its error.
    """

    name: str
    expression: str
    source: str
    error: str = ""

    def evaluate(self, symbols: Mapping[str, float]) -> int:
        """Return the amount, rounded to a whole byte."""
        return round(evaluate(self.expression, symbols))

    def line(
        self,
        symbols: Mapping[str, float],
        *,
        low_bytes: int | None = None,
        high_bytes: int | None = None,
        note: str = "",
    ) -> Line:
        """Return a line of a bill; a bound that is not given equals the amount."""
        n_bytes = self.evaluate(symbols)
        low = n_bytes if low_bytes is None else min(low_bytes, n_bytes)
        high = n_bytes if high_bytes is None else max(high_bytes, n_bytes)
        used = {name: symbols[name] for name in names_in(self.expression)}
        return Line(
            self.name, n_bytes, low, high, self.expression, used, note, self.source, self.error
        )


def evaluate(expression: str, symbols: Mapping[str, float]) -> float:
    """Return the value of an expression of numbers, symbols, + - * / // **, min, max and ceil.

    Raises:
        TokmillError: a symbol has no value, or the expression holds something else.
    """
    return _function(expression)(symbols)


@cache
def names_in(expression: str) -> tuple[str, ...]:
    """Return the symbols of an expression, in order of their first appearance."""
    names = [node.id for node in ast.walk(_parsed(expression)) if isinstance(node, ast.Name)]
    symbols = dict.fromkeys(name for name in names if name not in _FUNCTIONS)
    return tuple(sorted(symbols, key=expression.index))


@cache
def _parsed(expression: str) -> ast.expr:
    return ast.parse(expression, mode="eval").body


@cache
def _function(expression: str) -> _Function:
    return _function_of(_parsed(expression))


def _function_of(node: ast.expr) -> _Function:
    """Return the function of a node: thousands of bills evaluate the same few expressions."""
    match node:
        case ast.Constant(value=int() | float() as number):
            return lambda symbols: number
        case ast.Name(id=name):
            return lambda symbols: symbols[name] if name in symbols else _refused(node, symbols)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            apply, of_left, of_right = _BINARY[type(op)], _function_of(left), _function_of(right)
            return lambda symbols: apply(of_left(symbols), of_right(symbols))
        case ast.Call(func=ast.Name(id=name), args=args) if name in _FUNCTIONS:
            call, of_args = _FUNCTIONS[name], [_function_of(arg) for arg in args]
            return lambda symbols: call(*[of_arg(symbols) for of_arg in of_args])
    return lambda symbols: _refused(node, symbols)


def _refused(node: ast.expr, symbols: Mapping[str, float]) -> NoReturn:
    raise TokmillError(f"formula: cannot evaluate {ast.unparse(node)}; known: {', '.join(symbols)}")


@dataclass(frozen=True, slots=True)
class Bill:
    """The memory of one place at one moment, in bytes; the total is the sum of the lines.

    `title` names place and moment ("GPU memory, training: start of backward"). `leaves_out` names
    what has no line. `missing` names what is not known: the total is then only a part. At a peak,
    `bounds` are the largest lower and upper bound of all moments. `kept_free` bytes of the GPU must
    stay free: a server takes a share of it.
    """

    title: str
    lines: tuple[Line, ...]
    leaves_out: tuple[str, ...] = ()
    missing: str = ""
    bounds: tuple[int, int] = (0, 0)
    kept_free: int = 0

    @property
    def n_bytes(self) -> int:
        """The expected total."""
        return sum(line.n_bytes for line in self.lines)

    @property
    def low_bytes(self) -> int:
        """The total if every line is at its lower bound."""
        return max(sum(line.low_bytes for line in self.lines), self.bounds[0])

    @property
    def high_bytes(self) -> int:
        """The total if every line is at its upper bound."""
        return max(sum(line.high_bytes for line in self.lines), self.bounds[1])

    def as_json(self) -> dict[str, Any]:
        """Return the bill as plain values."""
        return {
            "title": self.title,
            "bytes": self.n_bytes,
            "low_bytes": self.low_bytes,
            "high_bytes": self.high_bytes,
            "lines": [line.as_json() for line in self.lines],
            "leaves_out": list(self.leaves_out),
            "missing": self.missing,
            "kept_free": self.kept_free,
        }
