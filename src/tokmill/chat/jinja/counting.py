"""A pass over a parsed chat template that adds calls which charge its budget.

A loop is charged when it begins, for its length times the work of its body, so that iterations cost
nothing extra. Macros, blocks and recursive loops are charged when they are entered; sums, slices
and joined texts when they are kept, or otherwise when they are printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import TYPE_CHECKING, Any

from jinja2 import nodes
from jinja2.utils import pass_context
from jinja2.visitor import NodeTransformer

from tokmill.chat.jinja.budget import BUDGET, EndlessError, as_text, printed_size

if TYPE_CHECKING:
    from collections.abc import Iterable, MutableMapping

    from jinja2 import Environment
    from jinja2.runtime import Context

    from tokmill.chat.jinja.budget import Budget

_COUNTED, _STEPPED, _CHARGED, _TEXT, _WEIGHED = (
    f"tokmill_{name}" for name in ("counted", "stepped", "charged", "text", "weighed")
)
_LONGEST_SUM = 8
"""Terms of a sum that are charged together; each may be as long as the whole budget."""

_COSTS: tuple[tuple[type[nodes.Node], int], ...] = (
    (nodes.Call, 40), (nodes.Filter, 10), (nodes.Test, 5), (nodes.Getattr, 5), (nodes.Getitem, 5)
)  # fmt: skip
_CHARACTERS_OF_STEP = 16
_BODIES = (nodes.For, nodes.Macro, nodes.CallBlock, nodes.Block)
_PLAIN = (nodes.Const, nodes.Compare, nodes.Not, nodes.Test, nodes.TemplateData)


def add_counters(filters: MutableMapping[str, Any]) -> None:
    """Add the filters that `charged` inserts into templates."""
    filters.update({
        _COUNTED: _counted, _STEPPED: _stepped, _CHARGED: _charged, _TEXT: _text, _WEIGHED: _weighed
    })  # fmt: skip


def charged(tree: nodes.Template, environment: Environment) -> nodes.Template:
    """Return a parsed template with calls that charge its work."""
    _Charges().visit(tree)
    tree.set_environment(environment)
    return tree


class _Charges(NodeTransformer):
    def visit_For(self, node: nodes.For) -> nodes.Node:
        n_steps = _work(node)
        self.generic_visit(node)
        if node.recursive:
            node.body.insert(0, _entered(n_steps, node.lineno))
        node.iter = _filtered(node.iter, _COUNTED, n_steps)
        return node

    def visit_Macro(self, node: Any) -> nodes.Node:
        n_steps = _work(node)
        self.generic_visit(node)
        if not _is_own(node):
            node.body.insert(0, _entered(n_steps, node.lineno))
        return node  # type: ignore[no-any-return]

    visit_CallBlock = visit_Block = visit_Macro

    def visit_Output(self, node: nodes.Output) -> nodes.Node:
        node.nodes = [self._printed(child) for child in node.nodes]
        return node

    def visit_Add(self, node: nodes.Add) -> nodes.Node:
        return _filtered(self._sum(node), _CHARGED)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        return _filtered(self._concat(node), _CHARGED)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(node, _CHARGED) if isinstance(node.arg, nodes.Slice) else node

    def visit_AssignBlock(self, node: nodes.AssignBlock) -> nodes.Node:
        self.generic_visit(node)
        node.filter = _filtered(node.filter, _CHARGED)
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        terms = [node.expr, *(operand.expr for operand in node.ops)]
        self.generic_visit(node)
        if sum(not isinstance(term, _PLAIN) for term in terms) > 1:
            # Two values that the template made may be equal to a great depth.
            node.expr = _filtered(node.expr, _WEIGHED)
            for operand in node.ops:
                operand.expr = _filtered(operand.expr, _WEIGHED)
        else:
            for operand in node.ops:
                if operand.op in ("in", "notin"):
                    operand.expr = _filtered(operand.expr, _CHARGED)
        return node

    def _printed(self, node: Any) -> Any:
        """Return a printed expression; printing charges its result."""
        if isinstance(node, nodes.Add):
            return self._sum(node)
        if isinstance(node, nodes.Concat):
            return self._concat(node)
        return self.visit(node)

    def _sum(self, node: nodes.Add) -> nodes.Expr:
        """Return a sum; if it has many terms, the first ones are charged."""
        terms: list[nodes.Add] = []
        first: Any = node
        while isinstance(first, nodes.Add):
            terms.append(first)
            first.right = self.visit(first.right)
            first = first.left
        terms[-1].left = self.visit(first)
        for outer in terms[_LONGEST_SUM - 1 :: _LONGEST_SUM]:
            if isinstance(outer.left, nodes.Add):
                outer.left = _filtered(outer.left, _CHARGED)
        return node

    def _concat(self, node: nodes.Concat) -> nodes.Concat:
        node.nodes = [
            child if isinstance(child, nodes.Const) else _filtered(self.visit(child), _TEXT)
            for child in node.nodes
        ]
        return node


def _work(node: nodes.Node) -> int:
    """Return the steps of a body, without inner bodies, which are charged themselves."""
    n_steps = 1
    for child in node.iter_child_nodes():
        if isinstance(child, nodes.TemplateData):
            n_steps += len(child.data) // _CHARACTERS_OF_STEP
        n_steps += next((cost for kind, cost in _COSTS if isinstance(child, kind)), 1)
        if not isinstance(child, _BODIES):
            n_steps += _work(child)
    return n_steps


def _is_own(node: Any) -> bool:
    """Return whether a block is a tag of an extension, whose body runs exactly once."""
    return isinstance(node, nodes.CallBlock) and isinstance(
        node.call.node, nodes.ExtensionAttribute
    )


def _filtered(node: Any, name: str, *values: int) -> nodes.Filter:
    """Return the node of a filter over another node; None: over the text of a block."""
    lineno = node.lineno if node else 0
    arguments: list[nodes.Expr] = [nodes.Const(value, lineno=lineno) for value in values]
    return nodes.Filter(node, name, arguments, [], None, None, lineno=lineno)


def _entered(n_steps: int, lineno: int) -> nodes.ExprStmt:
    """Return a statement that charges steps."""
    return nodes.ExprStmt(_filtered(nodes.Const(n_steps, lineno=lineno), _STEPPED), lineno=lineno)


@pass_context
def _counted(context: Context, items: Any, n_steps: int) -> Any:
    """Return the items of a loop, charged for all steps now or one by one."""
    budget: Budget = context.parent[BUDGET]
    if type(items) is list:
        budget.steps -= n_steps * len(items)
        if budget.steps < 0:
            budget.extend()
        return items
    if isinstance(items, set | frozenset):
        raise EndlessError("it loops over a set, whose order is not the same in every run")
    if isinstance(items, Sized):
        budget.step(n_steps * len(items))
        return items
    return _one_by_one(items, n_steps, budget)


def _one_by_one(items: Iterable[Any], n_steps: int, budget: Budget) -> Iterator[Any]:
    for item in items:
        budget.step(n_steps)
        yield item


@pass_context
def _stepped(context: Context, n_steps: int) -> None:
    context.parent[BUDGET].step(n_steps)


@pass_context
def _charged(context: Context, value: Any) -> Any:
    """Return a sum, a slice or the text of a block; charge its length."""
    if isinstance(value, Sized):
        context.parent[BUDGET].write(len(value) if isinstance(value, str) else 4 * len(value))
    return value


@pass_context
def _text(context: Context, value: Any) -> Any:
    """Return an operand of `~` as text."""
    return value if type(value) is str else as_text(value, context.parent[BUDGET])


@pass_context
def _weighed(context: Context, value: Any) -> Any:
    """Return an operand of a comparison; charge its size at all depths."""
    if type(value) in (list, tuple, dict, str):
        context.parent[BUDGET].write(printed_size(value, context.parent[BUDGET]))
    return value
