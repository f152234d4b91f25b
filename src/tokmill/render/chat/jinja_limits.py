"""Bounds on the work of a chat template: it is a program, and may be written never to end.

Loops are charged for the length of what they go over as they begin, so that a step costs nothing;
a product that would be huge is not computed, a sum that is huge not kept. What is left takes less
than a second for a short conversation. The sandbox of Jinja bounds `range` alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import TYPE_CHECKING, Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import pass_context

if TYPE_CHECKING:
    from jinja2.runtime import Context

STEPS = "tokmill_steps"
"""The variable that holds the steps left to a rendering, in a list of one."""

_STEPS_OF_ANY = 10_000_000
_STEPS_OF_PAIR = 100
"""Some templates look at all messages from each."""

_MAX_LENGTH = 1 << 27
_MAX_BITS = 1 << 16
_SUMS: tuple[type[nodes.Expr], ...] = (nodes.Concat, nodes.Add)
_COUNTED, _BOUNDED = "tokmill_counted", "tokmill_bounded"


class EndlessError(SecurityError):
    """A template loops, or writes, without end."""


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox, with bounds; what is compiled must go through `limited`."""

    intercepted_binops = frozenset({"*", "**"})

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.filters[_COUNTED] = _counted
        self.filters[_BOUNDED] = _bounded

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Give a product or a power.

        Raises:
            EndlessError: it would be huge.
        """
        if operator == "**":
            size = _bits(left) * abs(right) if isinstance(right, int) else 0
            is_huge = size > _MAX_BITS
        elif isinstance(left, int) and isinstance(right, int):
            is_huge = _bits(left) + _bits(right) > _MAX_BITS
        else:
            is_huge = _length(left) * _length(right) > _MAX_LENGTH
        if is_huge:
            raise EndlessError(f"what {operator} gives here is too large for a chat template")
        return super().call_binop(context, operator, left, right)


def limited(tree: nodes.Template, environment: LimitedEnvironment) -> nodes.Template:
    """Give a parsed template, changed so that its loops are counted, and what it keeps measured."""
    for loop in list(tree.find_all(nodes.For)):
        loop.iter = _filtered(loop.iter, _COUNTED)
    for kept in list(tree.find_all(nodes.Assign)):
        if isinstance(kept.node, _SUMS) or any(kept.node.find(kind) for kind in _SUMS):
            kept.node = _filtered(kept.node, _BOUNDED)
    for block in list(tree.find_all(nodes.AssignBlock)):
        block.filter = _filtered(block.filter, _BOUNDED)
    tree.set_environment(environment)
    return tree


def steps_for(n_messages: int) -> list[int]:
    """Give what `STEPS` is to hold for a conversation of that many messages."""
    return [_STEPS_OF_ANY + _STEPS_OF_PAIR * n_messages * n_messages]


def _filtered(node: Any, name: str) -> nodes.Filter:
    """Give the node of a filter over another; None stands for what a block gives."""
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno if node else 0)


@pass_context
def _counted(context: Context, items: Any) -> Any:
    """Give what a loop goes over, charged to the rendering."""
    left = context.parent.get(STEPS)
    if left is None:
        return items
    if isinstance(items, Sized):
        _charge(left, len(items))
        return items
    return _charged(items, left)


def _charged(items: Iterable[Any], left: list[int]) -> Iterator[Any]:
    for item in items:
        _charge(left, 1)
        yield item


def _charge(left: list[int], n_steps: int) -> None:
    left[0] -= n_steps
    if left[0] < 0:
        raise EndlessError("its loops do not end within reason")


def _bounded(value: Any) -> Any:
    """Give a sum, if it is not huge: one that doubles in a loop would fill the memory."""
    if isinstance(value, Sized) and len(value) > _MAX_LENGTH:
        raise EndlessError("what it keeps grows without end")
    return value


def _bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 0


def _length(value: Any) -> int:
    if isinstance(value, Sized):
        return len(value)
    return value if isinstance(value, int) else 1
