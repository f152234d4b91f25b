"""The sandbox of chat templates, with limits: a template is a program that may never end.

The limits are counts, so that the same record is refused on every machine: steps of loops and
macros, characters written or searched, depth of calls and of values. Large results are charged
before they are made. Loops, macros and sums are counted by `jinja.counting`, filters by
`jinja.filters`, and methods, operators and printing here.
"""

from __future__ import annotations

import re
from collections.abc import Sized
from types import BuiltinMethodType, FunctionType
from typing import TYPE_CHECKING, Any

from jinja2.runtime import BlockReference, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from jinja2.utils import pass_context

from tokmill.chat.jinja.budget import BUDGET, Budget, EndlessError, as_text, printed_size
from tokmill.chat.jinja.counting import add_counters
from tokmill.chat.jinja.filters import limit_filters
from tokmill.chat.jinja.sizes import (
    ITEM,
    check_widths,
    length_of,
    method_size,
    percent_size,
    product_size,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from jinja2.runtime import Context

_CALLERS = (Macro, BlockReference, LoopContext)
"""Callables that run code of the template, and so may call themselves."""

_DICT_ATTRIBUTES = frozenset(dir(dict))
_LOOP_ATTRIBUTES = frozenset(("index", "index0", "first", "last", "previtem", "nextitem"))
_LONGEST_JOINED = 1 << 27
_LONGEST_FLOAT = 320
_LOOP_VARIABLES = ("_loop_vars", "_block_vars")
"""Arguments that Jinja adds to calls of functions that ask for the context."""


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox with limits; templates must pass through `jinja.counting.charged`.

    Call `limit` before compiling. Every rendering needs a `Budget` in the variable `BUDGET`.
    """

    intercepted_binops = frozenset({"*", "**", "%", "//"})

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.finalize = _printed
        self.concat = _joined  # type: ignore[method-assign]

    def limit(self) -> None:
        """Limit the filters and tests, after all are added."""
        limit_filters(self.filters, self.tests)
        add_counters(self.filters)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Return a product, power, remainder or quotient."""
        if operator == "%" and isinstance(left, str | bytes):
            _budget(context).write(percent_size(left, right, _budget(context)))
        else:
            _budget(context).write(product_size(operator, left, right))
        return super().call_binop(context, operator, left, right)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return an attribute, or an item of a dict; for most faster than the sandbox's own."""
        if type(obj) is dict and attribute not in _DICT_ATTRIBUTES:
            try:
                return obj[attribute]
            except KeyError:
                return self.undefined(obj=obj, name=attribute)
        if type(obj) is LoopContext and attribute in _LOOP_ATTRIBUTES:
            return getattr(obj, attribute)
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Return an item or an attribute."""
        if type(argument) is tuple:  # hashing may not end, and JSON has no such key
            return self.undefined(obj=obj, name=str(type(argument)))
        return super().getitem(obj, argument)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a function; charge its result and the depth of calls."""
        budget: Budget = __context.parent[BUDGET]
        budget.step(1)
        if type(__obj) is BuiltinMethodType:
            return _call_method(budget, __obj, args, _own(kwargs))
        if isinstance(__obj, _CALLERS):
            budget.enter()
            try:
                return super().call(__context, __obj, *args, **kwargs)
            finally:
                budget.leave()
        if type(__obj) is FunctionType and hasattr(__obj, "__wrapped__"):
            return _formatted(__self, budget, __obj.__wrapped__, args, _own(kwargs))
        for argument in (*args, *kwargs.values()):
            budget.write(ITEM * length_of(argument))
        return super().call(__context, __obj, *args, **kwargs)


def _budget(context: Context) -> Budget:
    budget: Budget = context.parent[BUDGET]
    return budget


def _own(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return arguments without those that Jinja adds."""
    if kwargs:
        for name in _LOOP_VARIABLES:
            kwargs.pop(name, None)
    return kwargs


def _call_method(budget: Budget, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a method of a value of a built-in type."""
    if method.__name__ == "join" and args and not isinstance(args[0], Sized):
        args = (list(args[0]), *args[1:])  # an iterator, measured before use
    budget.write(method_size(method, args, kwargs, budget))
    if type(method.__self__) is not str:
        for argument in args:  # comparing or hashing it goes to all depths
            if type(argument) in (list, tuple, dict):
                printed_size(argument, budget)
    result = method(*args, **kwargs)
    if type(result) is list:
        budget.write(ITEM * len(result))
    return result


def _formatted(
    environment: LimitedEnvironment,
    budget: Budget,
    method: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Return the result of `str.format` or `format_map`, which the sandbox wraps."""
    text = method.__self__
    if type(text) is not str:  # Markup escapes its arguments
        raise EndlessError("format is called on a text that is marked as safe")
    formatter = _Formatter(environment, budget)
    if method.__name__ == "format_map":
        (values,) = args
        return formatter.vformat(text, (), values)
    return formatter.vformat(text, args, kwargs)


class _Formatter(SandboxedFormatter):
    """The sandbox's formatter; measures each field before it is written."""

    def __init__(self, environment: LimitedEnvironment, budget: Budget) -> None:
        super().__init__(environment)
        self._budget = budget

    def vformat(self, format_string: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Return the text with its fields filled in."""
        self._budget.write(len(format_string))
        return super().vformat(format_string, args, kwargs)

    def convert_field(self, value: Any, conversion: Any) -> Any:
        """Return a value converted by `!r`, `!s` or `!a`."""
        if conversion is not None:
            self._budget.write(printed_size(value, self._budget, to_print=True))
        return super().convert_field(value, conversion)

    def format_field(self, value: Any, format_spec: str) -> Any:
        """Return a value in a format, such as `>10`."""
        widths = re.findall(r"[0-9]+", format_spec)
        check_widths(widths)
        self._budget.write(sum(map(int, widths)) + _LONGEST_FLOAT)
        self._budget.write(printed_size(value, self._budget, to_print=True))
        return super().format_field(value, format_spec)


@pass_context
def _printed(context: Context, value: Any) -> Any:
    """Return the text of a printed value, `{{ … }}`; charge its length."""
    budget = context.parent[BUDGET]
    if type(value) is not str:
        value = as_text(value, budget)
    budget.characters -= len(value) + 1
    if budget.characters < 0:
        budget.extend()
    return value


def _joined(pieces: Iterable[str]) -> str:
    """Return the text of a macro, a set block or a template; its parts are charged already."""
    if type(pieces) is not list:
        pieces = list(pieces)
    if sum(map(len, pieces)) > _LONGEST_JOINED:
        raise EndlessError("it writes too much")
    return "".join(pieces)
