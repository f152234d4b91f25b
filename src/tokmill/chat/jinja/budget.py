"""The budget of one rendering of a chat template: steps, characters, depth; and sizes of values.

The budget grows with the conversation, so that no record is refused because it is long: some
templates look at all messages from each message, and all read every text several times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jinja2
from jinja2.exceptions import SecurityError

from tokmill.chat.escaping import texts_of

if TYPE_CHECKING:
    from collections.abc import Callable

BUDGET = "tokmill_budget"
"""The variable that holds the `Budget` of a rendering."""

_STEPS = 10_000_000
_STEPS_OF_MESSAGE, _STEPS_OF_PAIR = 10_000, 1_000
_CHARACTERS = 1 << 24
_CHARACTERS_OF_PAIR = 200
_TIMES_INPUT, _STEPS_OF_CHARACTER = 64, 256
_DEEPEST_CALL = 60
"""Nested macros; each takes eight of Python's thousand stack frames."""
_DEEPEST_VALUE = 200
_ITEM, _NUMBER = 4, 24


class EndlessError(SecurityError):
    """A template does not end within its budget."""


class Budget:
    """The rest of a rendering's budget; all methods raise `EndlessError` when it is used up.

    `characters`: to be written, copied or searched. `steps`: to be executed, about 20 in a
    microsecond. `measure` returns the characters of the conversation; it is called only when the
    usual budget is used up.
    """

    __slots__ = ("_depth", "_measure", "characters", "steps")

    def __init__(self, n_messages: int, measure: Callable[[], int] | None = None) -> None:
        n_pairs = n_messages * n_messages
        self.steps = _STEPS + _STEPS_OF_MESSAGE * n_messages + _STEPS_OF_PAIR * n_pairs
        self.characters = _CHARACTERS + _CHARACTERS_OF_PAIR * n_pairs
        self._depth = 0
        self._measure = measure

    def step(self, n_steps: int) -> None:
        """Charge steps."""
        self.steps -= n_steps
        if self.steps < 0:
            self.extend()

    def write(self, n_characters: int) -> None:
        """Charge characters."""
        self.characters -= n_characters
        if self.characters < 0:
            self.extend()

    def extend(self) -> None:
        """Add the extra budget of a long conversation, once."""
        if self._measure is not None:
            n_input = self._measure()
            self._measure = None
            self.steps += _STEPS_OF_CHARACTER * n_input
            self.characters += _TIMES_INPUT * n_input
        if self.steps < 0:
            raise EndlessError("its loops do not end within reason")
        if self.characters < 0:
            raise EndlessError("it writes or copies too much text")

    def enter(self) -> None:
        """Charge a call of a macro, block or recursive loop until `leave`."""
        self._depth += 1
        if self._depth > _DEEPEST_CALL:
            raise EndlessError(f"its macros call each other more than {_DEEPEST_CALL} deep")

    def leave(self) -> None:
        """End a call."""
        self._depth -= 1


def printed_size(value: Any, budget: Budget, *, to_print: bool = False) -> int:
    """Return about how many characters a value takes when printed, at all depths.

    Each level is charged before the next: a list that holds itself twice, forty levels deep, is
    small in memory and endless in print. With `to_print`, refuse a value that has no text.
    """
    size, level = 0, [value]
    for _ in range(_DEEPEST_VALUE):
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str:
                size += len(item) + _ITEM
            elif kind is dict:
                budget.write(2 * _ITEM * len(item))
                below += item
                below += item.values()
            elif kind is list or kind is tuple:
                budget.write(_ITEM * len(item))
                below += item
            else:
                size += _size(item, below, budget, to_print=to_print)
        size += _ITEM * len(below)
        if not below:
            return size
        level = below
    raise EndlessError(f"a value is nested more than {_DEEPEST_VALUE} deep")


def as_text(value: Any, budget: Budget) -> Any:
    """Return the text of a value; refuse a value that has no text."""
    kind = type(value)
    if isinstance(value, str):
        return value  # text marked as safe must stay so
    if kind is int or kind is float or value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, jinja2.Undefined):
        return str(value)
    budget.write(printed_size(value, budget, to_print=True))
    return str(value)


def size_of(value: Any) -> int:
    """Return the number of characters in all texts of a value of JSON."""
    return sum(map(len, texts_of(value, skipped_keys=frozenset())))


_EMPTY: dict[str, object] = {}
_VIEWS = (type(_EMPTY.keys()), type(_EMPTY.values()), type(_EMPTY.items()))


def _size(item: Any, below: list[Any], budget: Budget, *, to_print: bool) -> int:
    if isinstance(item, str | bytes):
        return len(item) + _ITEM
    if isinstance(item, int):
        return _NUMBER + int(item).bit_length() // 3
    if item is None or isinstance(item, float | range | jinja2.Undefined):
        return _NUMBER
    if isinstance(item, (list, tuple, dict, *_VIEWS)):  # subclasses of Jinja's own
        budget.write(_ITEM * len(item))
        below += item
        return _ITEM
    if to_print:
        raise jinja2.TemplateError(f"it prints a value that has no text: {type(item).__name__}")
    return _ITEM
