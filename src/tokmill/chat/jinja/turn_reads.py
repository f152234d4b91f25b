"""How the parts of a chat template read the messages: told by filters that are added here.

A list of messages may be read at the first message, in a turn at its own, earlier or next ones, and
in the ending at the last one; a condition may ask whether there are any. Nothing else is accepted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

if TYPE_CHECKING:
    from collections.abc import Iterable

REST, TURNS, TURN, DONE, ITEM, IS_LAST, NEXT_ITEM, ASKED, KEPT, BEGUN = (
    f"tokmill_{name}"
    for name in (
        "rest", "turns", "turn", "done", "item", "is_last", "next_item", "asked", "kept", "begun",
    )
)  # fmt: skip
"""The filters that tell `jinja.turns` what a template reads, and where its turns begin."""

PROMPT = "add_generation_prompt"

_ALLOWED = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.Const, nodes.Name, nodes.Getattr,
    nodes.Getitem, nodes.Slice, nodes.For, nodes.If, nodes.Assign, nodes.AssignBlock, nodes.NSRef,
    nodes.Filter, nodes.Test, nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not,
    nodes.BinExpr, nodes.UnaryExpr, nodes.Concat, nodes.CondExpr, nodes.Call, nodes.Keyword,
    nodes.List, nodes.Dict, nodes.Pair, nodes.Tuple, nodes.Macro, nodes.ExprStmt,
)  # fmt: skip
_OF_LOOP = frozenset(("index", "index0", "first", "previtem", "depth", "depth0", "cycle"))
_WITH_MEMORY = frozenset(("cycler", "joiner"))
_KEPT_FILTERS = frozenset((
    "trim", "length", "count", "tojson", "string", "upper", "lower", "replace", "default", "d",
    "list", "join", "capitalize", "title", "int", "first", "last", "safe", "indent",
))  # fmt: skip
"""Filters whose result may be kept in a variable: others return iterators, which loops use up."""


class OtherFormError(Exception):
    """A template reads messages in another way."""


class Reads(NamedTuple):
    """What the parts of a template read.

    `turns_ask`: a turn may read the generation prompt. `ending_reads`: the ending reads messages.
    """

    turns_ask: bool
    ending_reads: bool


def mark_reads(
    beginning: list[nodes.Node], loop: nodes.For, ending: list[nodes.Node], lists: set[str]
) -> Reads:
    """Add filters to the parts of a template, in place; `lists`: names of lists of messages.

    Raises:
        OtherFormError: a part reads messages in another way.
    """
    outside = {name for node in (*beginning, *ending) for name in stored(node)}
    marks = _ReadMarks(lists, stored(loop) - outside)
    marks.change("beginning", beginning)
    marks.change("turn", loop.body)
    marks.change("ending", ending)
    loop.iter = filtered(loop.iter, TURNS)
    loop.body = [_if(TURN, loop.body)]
    beginning[:] = [node if stored(node) else _if(BEGUN, [node]) for node in beginning]
    return Reads(marks.turns_ask, marks.ending_reads)


class _ReadMarks(NodeTransformer):
    """Adds the filters; `own`: namespaces that each turn makes for itself."""

    def __init__(self, lists: set[str], own: set[str]) -> None:
        self._lists = lists
        self._own = own
        self._part = ""
        self._n_inner = 0
        self._in_macro = False
        self.turns_ask = self.ending_reads = False

    def change(self, part: str, statements: list[nodes.Node]) -> None:
        """Add filters to the statements of a part."""
        self._part = part
        statements[:] = [self.visit(node) for node in statements]

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        """Return a node with filters."""
        if not isinstance(node, _ALLOWED):
            raise OtherFormError
        return super().visit(node, *args, **kwargs)

    def visit_Name(self, node: nodes.Name) -> nodes.Node:
        in_turn = self._part == "turn"
        if node.name in self._lists or node.name in _WITH_MEMORY:
            raise OtherFormError
        if node.name == "loop" and in_turn and not self._n_inner:
            raise OtherFormError
        if node.name == PROMPT:
            if node.ctx != "load" or self._part == "beginning" or self._in_macro:
                raise OtherFormError
            if in_turn:
                self.turns_ask = True
                return filtered(node, ASKED)
        return node

    def visit_Getattr(self, node: nodes.Getattr) -> nodes.Node:
        if self._part != "turn" or self._n_inner or not is_name(node.node, {"loop"}):
            return self.generic_visit(node)
        if node.attr in ("last", "nextitem"):
            return filtered(node, IS_LAST if node.attr == "last" else NEXT_ITEM)
        if node.attr not in _OF_LOOP:
            raise OtherFormError
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        if not is_name(node.node, self._lists):
            return self.generic_visit(node)
        if isinstance(node.arg, nodes.Const) and node.arg.value == 0:
            return node
        if self._part == "ending" and _is_minus_one(node.arg):
            self.ending_reads = True
            return node
        if self._part != "turn" or isinstance(node.arg, nodes.Slice):
            raise OtherFormError
        return nodes.Filter(
            node.node, ITEM, [self.visit(node.arg)], [], None, None, lineno=node.lineno
        )

    def visit_Assign(self, node: nodes.Assign) -> nodes.Node:
        if isinstance(node.target, nodes.Name) and node.target.name in self._lists:
            if self._part != "beginning" or self._n_inner or self._in_macro:
                raise OtherFormError
            node.node = self._rest(node.node)
            return node
        kept = node.find_all(nodes.Filter) if self._part == "beginning" else ()
        if any(found.name not in _KEPT_FILTERS for found in kept):
            raise OtherFormError
        if not isinstance(node.target, nodes.NSRef):
            return self.generic_visit(node)
        node.node = self.visit(node.node)
        if self._in_macro or (self._part == "turn" and node.target.name not in self._own):
            node.node = filtered(node.node, KEPT)
        return node

    def visit_NSRef(self, node: nodes.NSRef) -> nodes.Node:
        raise OtherFormError  # in a tuple of targets

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        if self._part != "beginning" or self._in_macro:
            raise OtherFormError
        self._in_macro = True
        self.generic_visit(node)
        self._in_macro = False
        return node

    def visit_For(self, node: nodes.For) -> nodes.Node:
        if node.recursive:
            raise OtherFormError
        node.iter = self.visit(node.iter)
        self._n_inner += 1
        for name in ("target", "test"):
            if (child := getattr(node, name)) is not None:
                setattr(node, name, self.visit(child))
        node.body = [self.visit(child) for child in node.body]
        node.else_ = [self.visit(child) for child in node.else_]
        self._n_inner -= 1
        return node

    def visit_If(self, node: nodes.If) -> nodes.Node:
        return self._asks(node, ("test",))

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        size: Any = node.expr
        if isinstance(size, nodes.Filter) and is_name(size.node, self._lists):
            with_zero = [isinstance(o.expr, nodes.Const) and o.expr.value == 0 for o in node.ops]
            if size.name in ("length", "count") and with_zero == [True]:
                return node  # there always is a message
        return self.generic_visit(node)

    def visit_Not(self, node: nodes.Not) -> nodes.Node:
        return self._asks(node, ("node",))

    def visit_And(self, node: nodes.Node) -> nodes.Node:
        return self._asks(node, ("left", "right"))

    visit_Or = visit_And

    def visit_Test(self, node: nodes.Test) -> nodes.Node:
        return self._asks(node, ("node",) if node.name in ("defined", "none") else ())

    def _asks(self, node: Any, fields: tuple[str, ...]) -> nodes.Node:
        """Return a condition; it may ask whether there are messages, as there always are."""
        kept = {name: getattr(node, name) for name in fields}
        kept = {name: child for name, child in kept.items() if is_name(child, self._lists)}
        for name in kept:
            setattr(node, name, nodes.Const(None))
        self.generic_visit(node)
        for name, child in kept.items():
            setattr(node, name, child)
        return node  # type: ignore[no-any-return]

    def _rest(self, node: Any) -> nodes.Expr:
        """Return a list of messages; one without the first tells so."""
        if isinstance(node, nodes.CondExpr):
            node.test = self.visit(node.test)
            node.expr1, node.expr2 = self._rest(node.expr1), self._rest(node.expr2)
            return node
        if is_rest(node, self._lists):
            return filtered(node, REST)
        if not is_name(node, self._lists):
            raise OtherFormError
        return node  # type: ignore[no-any-return]


def stored(node: nodes.Node) -> set[str]:
    """Return the names that a statement sets: variables, macros and their attributes."""
    found = {ref.name for ref in node.find_all(nodes.NSRef)}
    for child in (node, *node.find_all((nodes.Assign, nodes.AssignBlock, nodes.Macro))):
        if isinstance(child, nodes.Macro):
            found.add(child.name)
        elif isinstance(child, nodes.Assign | nodes.AssignBlock):
            targets = (child.target, *child.target.find_all(nodes.Name))
            found |= {name.name for name in targets if isinstance(name, nodes.Name | nodes.NSRef)}
    return found


def is_name(node: Any, names: Iterable[str]) -> bool:
    """Return whether an expression is one of these variables."""
    return isinstance(node, nodes.Name) and node.ctx == "load" and node.name in names


def is_rest(node: Any, lists: set[str]) -> bool:
    """Return whether an expression is such as `messages[1:]`."""
    if not (isinstance(node, nodes.Getitem) and is_name(node.node, lists)):
        return False
    part: Any = node.arg
    if not isinstance(part, nodes.Slice) or part.stop or part.step or part.start is None:
        return False
    return isinstance(part.start, nodes.Const) and part.start.value in (0, 1)


def _is_minus_one(node: Any) -> bool:
    is_one = isinstance(node, nodes.Neg) and isinstance(node.node, nodes.Const)
    return is_one and node.node.value == 1


def filtered(node: Any, name: str) -> nodes.Filter:
    """Return a filter over an expression."""
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _if(name: str, body: list[nodes.Node]) -> nodes.If:
    """Return a condition that is what a filter returns."""
    return nodes.If(filtered(nodes.Const(None, lineno=0), name), body, [], [], lineno=0)


def statement(name: str) -> nodes.ExprStmt:
    """Return a statement that calls a filter."""
    return nodes.ExprStmt(filtered(nodes.Const(None, lineno=0), name), lineno=0)
