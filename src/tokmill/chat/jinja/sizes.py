"""Upper bounds for the size of the result of a method or an operator, before it runs.

Sizes are in characters; they are charged to a `Budget` (see `jinja.budget`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tokmill.chat.jinja.budget import Budget, EndlessError, printed_size

if TYPE_CHECKING:
    from collections.abc import Callable

    Growth = Callable[[Any, tuple[Any, ...], dict[str, Any], Budget], int]

ITEM = 16
"""Characters charged for an item of a new list; it takes as much memory."""

LONGEST_WIDTH = 1 << 12
"""Largest width of a format, in characters."""

_MAX_BITS = 1 << 16
_SHORT = 1 << 12
_LONGEST_FLOAT = 320
_PERCENT = re.compile(r"%(?:\([^)]*\))?[#0\- +]*(\d+|\*)?(?:\.(\d+|\*))?")


def check_bits(*values: Any) -> None:
    """Check that integers are not huge."""
    for value in values:
        if isinstance(value, int) and int(value).bit_length() > _MAX_BITS:
            raise EndlessError("a number is too large for a chat template")


def product_size(operator: str, left: Any, right: Any) -> int:
    """Return the size of a product, power, remainder or quotient."""
    check_bits(left, right)
    if isinstance(left, int) and isinstance(right, int):
        if operator == "**" and int(left).bit_length() * abs(right) > _MAX_BITS:
            raise EndlessError("a power is too large for a chat template")
        if operator == "*" and left.bit_length() + right.bit_length() > _MAX_BITS:
            raise EndlessError("a product is too large for a chat template")
        return 1
    if operator != "*":
        return 1
    items, n_times = (right, left) if isinstance(left, int) else (left, right)
    if not isinstance(n_times, int):
        return 1
    return max(n_times, 0) * _size(items)


def percent_size(template: str | bytes, values: Any, budget: Budget) -> int:
    """Return the size of `template % values`."""
    text = template if isinstance(template, str) else template.decode("latin-1")
    budget.write(len(text))
    found = _PERCENT.findall(text)
    widths = [n for pair in found for n in pair if n]
    given = values if isinstance(values, tuple) else (values,)
    if "*" in widths:
        widths += [str(abs(n)) for n in given if isinstance(n, int)]
    check_widths(n for n in widths if n != "*")
    n_uses = len(found) if isinstance(values, dict) else 1
    n_filled = sum(int(n) for n in widths if n != "*")
    shown = printed_size(values, budget, to_print=True)
    return len(text) + n_filled + _LONGEST_FLOAT * len(found) + n_uses * shown


def check_widths(widths: Any) -> None:
    """Check the numbers of a format, written in digits."""
    for digits in widths:
        if len(digits.lstrip("0")) > len(str(LONGEST_WIDTH)) or int(digits) > LONGEST_WIDTH:
            raise EndlessError(f"a format is wider than {LONGEST_WIDTH} characters")


def method_size(method: Any, args: tuple[Any, ...], kwargs: dict[str, Any], budget: Budget) -> int:
    """Return the size that a method of a built-in type makes or searches."""
    owner = method.__self__
    growth = _METHODS.get(method.__name__)
    if growth is None:
        return length_of(owner)
    if isinstance(owner, str):
        return growth(owner, args, kwargs, budget)
    return _of_anything(owner, args, kwargs, budget)


def length_of(value: Any) -> int:
    """Return the number of characters or items of a value; 1 if it has no length."""
    try:
        return len(value)
    except TypeError:
        return 1


def widest(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Return the sum of the positive integers among arguments."""
    return sum(max(value, 0) for value in (*args, *kwargs.values()) if isinstance(value, int))


def _size(value: Any) -> int:
    return length_of(value) * (1 if isinstance(value, str | bytes) else ITEM)


def _filled(owner: str, args: tuple[Any, ...], kwargs: dict[str, Any], _budget: Budget) -> int:
    return len(owner) + widest(args, kwargs)


def _tabs(owner: str, args: tuple[Any, ...], kwargs: dict[str, Any], _budget: Budget) -> int:
    return len(owner) + owner.count("\t") * max(widest(args, kwargs), 8)


def _replaced(owner: str, args: tuple[Any, ...], _kwargs: Any, _budget: Budget) -> int:
    if len(args) < 2 or not isinstance(args[0], str) or not isinstance(args[1], str):
        return len(owner)
    return len(owner) + (owner.count(args[0]) * len(args[1]) if len(args[1]) > 1 else 0)


def _joined(owner: str, args: tuple[Any, ...], _kwargs: Any, _budget: Budget) -> int:
    items = args[0] if args else ()
    return sum(map(length_of, items)) + len(owner) * length_of(items)


def _split(owner: str, args: tuple[Any, ...], _kwargs: Any, budget: Budget) -> int:
    if len(owner) <= _SHORT:
        return _searched(owner, args, _kwargs, budget)
    separator = args[0] if args and isinstance(args[0], str) and args[0] else ""
    n_parts = owner.count(separator) if separator else len(owner) // 2
    return _searched(owner, args, _kwargs, budget) + ITEM * n_parts


def _searched(owner: str, args: tuple[Any, ...], _kwargs: Any, _budget: Budget) -> int:
    """Return the cost of a search, which may take the product of the two lengths."""
    wanted = len(args[0]) if args and isinstance(args[0], str) else 0
    return len(owner) * (1 + wanted // 64)


def _translated(owner: str, args: tuple[Any, ...], _kwargs: Any, _budget: Budget) -> int:
    table = args[0] if args else ()
    values = table.values() if isinstance(table, dict) else table
    return len(owner) * (1 + max(map(length_of, values), default=1))


def _of_anything(owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any], _budget: Budget) -> int:
    """Return a bound for methods of bytes and numbers, which hardly any template uses."""
    n_characters = sum(_size(value) for value in (*args, *kwargs.values()))
    return (length_of(owner) + 1) * (1 + widest(args, kwargs) + n_characters)


_METHODS: dict[str, Growth] = {
    **dict.fromkeys(("startswith", "endswith", "get", "keys", "values", "items"), lambda *_: 1),
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), _filled),
    **dict.fromkeys(("split", "rsplit", "splitlines"), _split),
    **dict.fromkeys(("rfind", "rindex", "rpartition", "strip", "lstrip", "rstrip"), _searched),
    **dict.fromkeys(("to_bytes", "fromkeys", "hex", "copy"), _of_anything),
    "expandtabs": _tabs,
    "replace": _replaced,
    "join": _joined,
    "translate": _translated,
}
