"""How the expressions of a Jinja template depend on the contents of messages: their ranks."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

from jinja2 import nodes

from tokmill.chat.jinja.node_checks import is_blank, is_constant, length_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


class Rank(IntEnum):
    """How an expression depends on the contents of messages, from weak to strong."""

    FIXED = 0
    """Not at all: roles, numbers, strings of the template."""
    ITEM = 1
    """A message, or a list of messages: always there, but perhaps equal to another."""
    TEXT = 2
    """A content, perhaps without white space at its ends, perhaps with literals around it."""
    TEXTS = 3
    """A list of one such text: a content split at a string that it does not hold."""
    OPAQUE = 4


class UnclearError(Exception):
    """A template decides something by contents in a way that is not understood."""


class Ranker:
    """Ranks the expressions of a template, and collects the strings that it looks for in contents.

    `ranks`: of variables by name, of attributes of namespaces by name with a dot. `strings`: what
    was looked for. `no_texts`: what is no string here. All methods raise `UnclearError`.
    """

    def __init__(self, macros: Mapping[str, nodes.Macro]) -> None:
        self._macros = macros
        self.ranks: dict[str, Rank] = {"messages": Rank.ITEM}
        self.strings: set[str] = set()
        self.no_texts: list[nodes.Node] = []

    def raise_to(self, name: str, rank: Rank) -> None:
        """Set the rank of a variable, unless it has a higher one."""
        self.ranks[name] = max(rank, self.ranks.get(name, Rank.FIXED))

    def decide(self, test: nodes.Node) -> None:
        """Read an expression whose truth decides; a text is true, as it is not only white space."""
        if self.rank(test) == Rank.OPAQUE:
            raise UnclearError

    def rank(self, node: nodes.Node) -> Rank:
        """Return the rank of an expression."""
        if node in self.no_texts:
            return Rank.FIXED
        for kind, rank_of in _RANK_OF:
            if isinstance(node, kind):
                return rank_of(self, node)
        raise UnclearError

    def _highest(self, operands: Iterable[nodes.Node]) -> Rank:
        return max(map(self.rank, operands), default=Rank.FIXED)

    def _constant(self, node: nodes.Const | nodes.TemplateData) -> Rank:
        return Rank.FIXED

    def _name(self, node: nodes.Name) -> Rank:
        return self.ranks.get(node.name, Rank.FIXED)

    def _attribute(self, node: nodes.Getattr) -> Rank:
        rank = self.rank(node.node)
        if node.attr == _CONTENT:
            return Rank.TEXT
        if node.attr in ("previtem", "nextitem"):
            return Rank.ITEM
        if rank == Rank.FIXED:
            return self.ranks.get(f".{node.attr}", Rank.FIXED)
        return Rank.FIXED  # of a message or a string: its role, or nothing

    def _item(self, node: nodes.Getitem) -> Rank:
        rank, key = self.rank(node.node), node.arg
        if isinstance(key, nodes.Const) and isinstance(key.value, str):
            return self._attribute(nodes.Getattr(node.node, key.value, "load"))
        if rank == Rank.TEXTS and not isinstance(key, nodes.Slice):
            return Rank.TEXT
        if rank >= Rank.TEXT:
            return Rank.OPAQUE
        if isinstance(key, nodes.Slice):
            return self._highest([node.node, *filter(None, (key.start, key.stop, key.step))])
        if self.rank(key) != Rank.FIXED:
            return Rank.OPAQUE
        # A variable may hold the word "content", but not where it counts messages.
        is_list = isinstance(node.node, nodes.Name) and "messages" in node.node.name
        return rank if is_list or not isinstance(key, nodes.Name) else Rank.OPAQUE

    def _sum(self, node: nodes.BinExpr | nodes.Concat) -> Rank:
        operands = node.nodes if isinstance(node, nodes.Concat) else [node.left, node.right]
        rank = self._highest(operands)
        return Rank.OPAQUE if rank == Rank.TEXTS else rank

    def _arithmetic(self, node: nodes.BinExpr) -> Rank:
        rank = self._highest([node.left, node.right])
        return Rank.OPAQUE if rank else rank

    def _sign(self, node: nodes.UnaryExpr) -> Rank:
        if isinstance(node, nodes.Not):
            self.decide(node.node)
            return Rank.FIXED
        return Rank.OPAQUE if self.rank(node.node) else Rank.FIXED

    def _choice(self, node: nodes.CondExpr) -> Rank:
        self.decide(node.test)
        return self._highest([node.expr1, *([] if node.expr2 is None else [node.expr2])])

    def _either(self, node: nodes.And | nodes.Or) -> Rank:
        self.decide(node.left)
        return self._highest([node.left, node.right])

    def _listed(self, node: nodes.List | nodes.Tuple) -> Rank:
        rank = self._highest(node.items)
        return rank if rank <= Rank.ITEM else Rank.OPAQUE

    def _dict(self, node: nodes.Dict) -> Rank:
        rank = self._highest([part for pair in node.items for part in (pair.key, pair.value)])
        return Rank.ITEM if rank <= Rank.ITEM else Rank.OPAQUE

    def _test(self, node: nodes.Test) -> Rank:
        rank = self.rank(node.node)
        is_known = node.name in _TESTS or (node.name in _NUMBER_TESTS and rank == Rank.FIXED)
        if not is_known:
            raise UnclearError
        self._highest(node.args)
        return Rank.FIXED

    def _compare(self, node: nodes.Compare) -> Rank:
        left = node.expr
        for operand in node.ops:
            self._compare_two(left, operand.op, operand.expr)
            left = operand.expr
        return Rank.FIXED

    def _compare_two(self, left: nodes.Expr, op: str, right: nodes.Expr) -> None:
        ranks = self.rank(left), self.rank(right)
        if ranks == (Rank.FIXED, Rank.FIXED):
            return
        if op in ("in", "notin") and ranks[0] == Rank.FIXED:
            if ranks[1] == Rank.TEXT:
                self._look_for([left])
                return
            if ranks[1] == Rank.ITEM:
                return  # a key of a message, which its roles decide
        counted = length_of(left)
        is_counted = counted is not None and self.rank(counted) == Rank.TEXT
        if is_counted and is_constant(right, 0) and op in ("gt", "ne", "eq"):
            return  # a text is not empty
        if op in ("eq", "ne"):
            for one, other in ((left, right), (right, left)):
                rank = self.rank(one)
                if isinstance(other, nodes.Const) and rank in (Rank.ITEM, Rank.TEXT):
                    self._look_for([other] if isinstance(other.value, str) else [])
                    return
        raise UnclearError

    def _look_for(self, strings: Sequence[nodes.Node]) -> None:
        for node in strings:
            if not (isinstance(node, nodes.Const) and isinstance(node.value, str)):
                raise UnclearError
            self.strings.add(node.value)

    def _filter(self, node: nodes.Filter) -> Rank:
        if node.node is None or node.name not in _FILTERS or node.dyn_args or node.dyn_kwargs:
            raise UnclearError
        rank = self.rank(node.node)
        given = [*node.args, *(pair.value for pair in node.kwargs)]
        if self._highest(given) or any(is_constant(value, _CONTENT) for value in given):
            raise UnclearError
        if rank == Rank.TEXT:
            return self._filtered_text(node)
        if rank in (Rank.TEXTS, Rank.ITEM) and node.name in ("length", "count"):
            return Rank.FIXED
        if rank == Rank.TEXTS:
            return Rank.TEXT if node.name in ("first", "last") else Rank.OPAQUE
        if rank == Rank.ITEM:
            return Rank.ITEM if node.name in _OF_ITEMS else Rank.OPAQUE
        return rank

    def _strip(self, given: Sequence[nodes.Node]) -> None:
        """Check that only white space is stripped: other characters would be part of a content."""
        if not all(map(is_blank, given)):
            raise UnclearError

    def _filtered_text(self, node: nodes.Filter) -> Rank:
        if node.name == "trim":
            self._strip(node.args)
            return Rank.TEXT
        if node.name == "replace":
            self._look_for(node.args[:1])
        keeps = node.name in ("string", "safe", "default", "d", "replace")
        return Rank.TEXT if keeps else Rank.OPAQUE

    def _call(self, node: nodes.Call) -> Rank:
        function = node.node
        given = [*node.args, *(pair.value for pair in node.kwargs)]
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            raise UnclearError
        if isinstance(function, nodes.Getattr):
            return self._method(self.rank(function.node), function, node.args)
        if not isinstance(function, nodes.Name):
            raise UnclearError
        if function.name in self._macros:
            return self._macro_call(self._macros[function.name], node)
        if function.name not in _FUNCTIONS:
            raise UnclearError
        for pair in node.kwargs:
            self.raise_to(f".{pair.key}", self.rank(pair.value))
        self._highest(given)
        return Rank.FIXED if self._highest(node.args) == Rank.FIXED else Rank.OPAQUE

    def _macro_call(self, macro: nodes.Macro, node: nodes.Call) -> Rank:
        for name, value in zip(macro.args, node.args, strict=False):
            self.raise_to(name.name, self.rank(value))
        for pair in node.kwargs:
            self.raise_to(pair.key, self.rank(pair.value))
        if len(node.args) > len(macro.args):
            raise UnclearError
        return Rank.TEXT

    def _method(self, rank: Rank, method: nodes.Getattr, given: Sequence[nodes.Expr]) -> Rank:
        highest = self._highest(given)
        if highest > Rank.FIXED:
            raise UnclearError
        if rank == Rank.TEXT:
            return self._text_method(method.attr, given)
        if method.attr == "get" and rank <= Rank.ITEM:
            if given and not isinstance(given[0], nodes.Const):
                return Rank.OPAQUE
            return Rank.TEXT if given and is_constant(given[0], _CONTENT) else Rank.FIXED
        return rank if rank == Rank.FIXED else Rank.OPAQUE

    def _text_method(self, name: str, given: Sequence[nodes.Expr]) -> Rank:
        if name in _STRIPS:
            self._strip(given)
            return Rank.TEXT
        if name in _SPLITS and given:
            self._look_for(given[:1])
            return Rank.TEXTS
        if name in _LOOKS:
            self._look_for(given)
            return Rank.FIXED
        if name == "replace":
            self._look_for(given[:1])
            return Rank.TEXT
        return Rank.OPAQUE


_CONTENT = "content"
_STRIPS = frozenset({"strip", "lstrip", "rstrip"})
_SPLITS = frozenset({"split", "rsplit"})
_LOOKS = frozenset({"startswith", "endswith", "find", "rfind", "count"})
_TESTS = frozenset({
    "defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number",
    "integer", "float", "boolean", "true", "false",
})  # fmt: skip
_NUMBER_TESTS = frozenset({"odd", "even", "divisibleby"})
_FILTERS = frozenset({
    "length", "count", "list", "first", "last", "tojson", "string", "trim", "selectattr",
    "rejectattr", "select", "reject", "map", "join", "default", "d", "reverse", "int", "items",
    "dictsort", "indent", "upper", "lower", "capitalize", "title", "replace", "safe",
})  # fmt: skip
_OF_ITEMS = frozenset({"list", "first", "last", "selectattr", "rejectattr", "reverse"})
_FUNCTIONS = frozenset({"range", "strftime_now", "raise_exception", "namespace", "dict"})


_RANK_OF: tuple[tuple[type[nodes.Node], Callable[[Ranker, Any], Rank]], ...] = (
    (nodes.Const, Ranker._constant),
    (nodes.TemplateData, Ranker._constant),
    (nodes.Name, Ranker._name),
    (nodes.Getattr, Ranker._attribute),
    (nodes.Getitem, Ranker._item),
    (nodes.Concat, Ranker._sum),
    (nodes.Add, Ranker._sum),
    (nodes.And, Ranker._either),
    (nodes.Or, Ranker._either),
    (nodes.BinExpr, Ranker._arithmetic),
    (nodes.UnaryExpr, Ranker._sign),
    (nodes.CondExpr, Ranker._choice),
    (nodes.List, Ranker._listed),
    (nodes.Tuple, Ranker._listed),
    (nodes.Dict, Ranker._dict),
    (nodes.Test, Ranker._test),
    (nodes.Compare, Ranker._compare),
    (nodes.Filter, Ranker._filter),
    (nodes.Call, Ranker._call),
)
"""The first kind that fits counts: `And` is also a `BinExpr`."""
