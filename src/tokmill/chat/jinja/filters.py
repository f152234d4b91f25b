"""Filters and tests of chat templates; the budget is charged before a filter runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from jinja2.utils import _PassArg, pass_context

from tokmill.chat.jinja.budget import BUDGET, Budget, EndlessError, printed_size
from tokmill.chat.jinja.sizes import ITEM, check_bits, length_of, percent_size, widest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, MutableMapping

    from jinja2.runtime import Context

    Cost = Callable[[Any, tuple[Any, ...], dict[str, Any], Budget], int]

_DEEPEST_CHAIN = 30
_STEPS_OF_ITEM = 8
_LARGEST_PRECISION = 300
_CHEAP = frozenset((
    "abs", "attr", "count", "d", "default", "first", "float", "last", "length", "safe",
    "filesizeformat",
))  # fmt: skip
_WEIGHED_TESTS = frozenset((
    "in", "eq", "equalto", "==", "ne", "!=", "gt", "greaterthan", ">", "ge", ">=", "lt", "lessthan",
    "<", "le", "<=", "lower", "upper", "divisibleby",
))  # fmt: skip


class Lazy:
    """The iterator that filters such as `map` return; it charges for each item."""

    __slots__ = ("_items", "depth")

    def __init__(self, items: Iterable[Any], budget: Budget, depth: int = 1) -> None:
        if depth > _DEEPEST_CHAIN:
            raise EndlessError(f"more than {_DEEPEST_CHAIN} filters work on one another's items")
        self._items = _charged(items, budget)
        self.depth = depth

    def __iter__(self) -> Iterator[Any]:
        return self._items

    def __next__(self) -> Any:
        return next(self._items)


def limit_filters(filters: MutableMapping[str, Any], tests: MutableMapping[str, Any]) -> None:
    """Replace filters and tests of an environment by ones that charge the budget."""
    for name, function in filters.items():
        if name not in _CHEAP:
            filters[name] = _limited(function, _COSTS.get(name, lambda value, *_: length_of(value)))
    for name, function in tests.items():
        if name in _WEIGHED_TESTS:
            tests[name] = _limited_test(function)


def _limited(function: Any, cost: Cost) -> Any:
    pass_arg = _PassArg.from_obj(function)

    @pass_context
    def limited(context: Context, value: Any = "", *args: Any, **kwargs: Any) -> Any:
        budget: Budget = context.parent[BUDGET]
        budget.step(1)
        budget.write(cost(value, args, kwargs, budget))
        depth = value.depth + 1 if type(value) is Lazy else 1
        return _checked(
            function(*_passed(pass_arg, context), value, *args, **kwargs), depth, budget
        )

    return limited


def _limited_test(function: Any) -> Any:
    @pass_context
    def limited(context: Context, value: Any, *args: Any) -> Any:
        budget: Budget = context.parent[BUDGET]
        if type(value) is not str or (args and type(args[0]) is not str):
            check_bits(value, *args)
            printed_size([value, *args], budget)
        elif args:
            budget.write(len(args[0]))
        return function(value, *args)

    return limited


def _passed(pass_arg: _PassArg | None, context: Context) -> tuple[Any, ...]:
    """Return the argument that Jinja adds for a filter that asks for its context."""
    if pass_arg is None:
        return ()
    if pass_arg is _PassArg.context:
        return (context,)
    return (context.eval_ctx if pass_arg is _PassArg.eval_context else context.environment,)


def _checked(result: Any, depth: int, budget: Budget) -> Any:
    """Return the result of a filter; charge its size."""
    if isinstance(result, str):
        budget.write(len(result))
    elif isinstance(result, list | tuple | dict):
        budget.write(ITEM * len(result))
    elif isinstance(result, Iterator):
        return Lazy(result, budget, depth)
    else:
        check_bits(result)
    return result


def _charged(items: Iterable[Any], budget: Budget) -> Iterator[Any]:
    for item in items:
        budget.step(_STEPS_OF_ITEM)
        yield item


def _deep(value: Any, args: tuple[Any, ...], kwargs: dict[str, Any], budget: Budget) -> int:
    """Return the cost of a filter that sorts, compares or prints a value at all depths."""
    if type(value) is str:
        return len(value)
    lengths = sum(length_of(item) for item in (*args, *kwargs.values()) if type(item) is list)
    return printed_size(value, budget) * (2 + lengths)


def _escaped(value: Any, _args: Any, _kwargs: Any, budget: Budget) -> int:
    """Return the size of a text whose characters may all need escapes."""
    return 6 * (
        len(value) if isinstance(value, str) else printed_size(value, budget, to_print=True)
    )


def _slow(value: Any, _args: Any, kwargs: Any, budget: Budget) -> int:
    """Return the cost of filters that are slow, or quadratic in the length of a text."""
    n = len(value) if isinstance(value, str) else printed_size(value, budget, to_print=True)
    texts = sum(len(item) for item in (*_args, *kwargs.values()) if isinstance(item, str))
    return n * (64 + n // 16 + texts)


def _indented(value: Any, args: tuple[Any, ...], kwargs: dict[str, Any], _budget: Budget) -> int:
    given = (*args, *kwargs.values())
    width = max(widest(args, kwargs), *(len(s) for s in given if isinstance(s, str)), 4)
    n_lines = len(value.splitlines()) + 1 if isinstance(value, str) else 1
    return length_of(value) + n_lines * width


def _replaced(value: Any, args: tuple[Any, ...], kwargs: dict[str, Any], budget: Budget) -> int:
    text = value if isinstance(value, str) else ""
    old, new = (*args, kwargs.get("old"), kwargs.get("new"))[:2]
    if not isinstance(old, str) or not isinstance(new, str):
        return printed_size([value, old, new], budget, to_print=True)
    return len(text) + text.count(old) * len(new)


def _joined(value: Any, args: tuple[Any, ...], kwargs: dict[str, Any], budget: Budget) -> int:
    separators = [item for item in (*args, *kwargs.values()) if isinstance(item, str)]
    size = len(value) if isinstance(value, str) else printed_size(value, budget)
    return size + length_of(value) * sum(map(len, separators))


def _formatted(value: Any, args: tuple[Any, ...], kwargs: dict[str, Any], budget: Budget) -> int:
    return percent_size(str(value), kwargs or args, budget) if isinstance(value, str) else 1


def _as_json(value: Any, args: tuple[Any, ...], kwargs: dict[str, Any], budget: Budget) -> int:
    """Return the size of JSON; an indent or separators may be written for every item and level."""
    size = printed_size(value, budget)
    given = [item for item in (*args, *kwargs.values()) if not isinstance(item, bool)]
    spaces = sum(length_of(item) for item in given if isinstance(item, str))
    spaces += sum(sum(map(length_of, item)) for item in given if isinstance(item, list | tuple))
    spaces += sum(max(item, 0) for item in given if isinstance(item, int))
    return size * (1 + spaces // 4) if spaces > 64 else size


def _rounded(_value: Any, args: tuple[Any, ...], kwargs: dict[str, Any], _budget: Budget) -> int:
    if widest(args, kwargs) > _LARGEST_PRECISION:
        raise EndlessError(f"a number is rounded to more than {_LARGEST_PRECISION} places")
    return 1


def _trimmed(value: Any, args: tuple[Any, ...], kwargs: dict[str, Any], _budget: Budget) -> int:
    characters = sum(len(item) for item in (*args, *kwargs.values()) if isinstance(item, str))
    return length_of(value) * (1 + characters // 64)


_COSTS: dict[str, Cost] = {
    **dict.fromkeys(
        ("center", "truncate"),
        lambda value, args, kwargs, _: length_of(value) + widest(args, kwargs),
    ),
    **dict.fromkeys(("sort", "unique", "groupby", "min", "max", "dictsort", "sum"), _deep),
    **dict.fromkeys(("e", "escape", "forceescape", "urlencode", "xmlattr", "string"), _escaped),
    **dict.fromkeys(("lower", "upper", "capitalize"), _escaped),
    **dict.fromkeys(("pprint", "striptags", "urlize", "wordwrap", "title", "wordcount"), _slow),
    "indent": _indented,
    "replace": _replaced,
    "join": _joined,
    "format": _formatted,
    "tojson": _as_json,
    "list": lambda value, *_: ITEM * length_of(value),
    "batch": lambda value, args, kwargs, _: length_of(value) + ITEM * widest(args, kwargs),
    "round": _rounded,
    "trim": _trimmed,
}
