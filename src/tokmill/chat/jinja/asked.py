"""What a Jinja template asks about the contents of messages, read from its syntax tree.

A template that only writes contents, without looking into them, writes the same text around all of
them. One that looks for a string in them, such as `</think>`, does so for all contents without that
string. So the strings that a template looks for tell for which contents its way is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jinja2 import nodes

from tokmill.chat.jinja.node_checks import calls, is_generation_tag
from tokmill.chat.jinja.ranks import Rank, Ranker, UnclearError

if TYPE_CHECKING:
    from collections.abc import Iterable


def strings_asked_for(tree: nodes.Template) -> frozenset[str] | None:
    """Return the strings that a template looks for in contents; None if it does anything else.

    Contents that hold none of them, and more than white space, lead the template the same way. A
    filter that rewrites contents is not found here: what it writes shows it.
    """
    reader = _Reader({macro.name: macro for macro in tree.find_all(nodes.Macro)})
    try:
        while True:  # ranks only rise, so that this ends
            before = dict(reader.ranks)
            reader.read(tree.body)
            if reader.ranks == before:
                return frozenset(reader.strings - {""})
    except (UnclearError, RecursionError):
        return None


class _Reader(Ranker):
    """Reads the statements of a template."""

    def read(self, body: Iterable[nodes.Node]) -> None:
        """Read statements."""
        for node in body:
            self._statement(node)

    def _statement(self, node: nodes.Node) -> None:
        if isinstance(node, nodes.Output):
            for part in node.nodes:
                self.rank(part)
        elif isinstance(node, nodes.If):
            self._branch(node)
        elif isinstance(node, nodes.For) and not node.recursive:
            self._loop(node)
        elif isinstance(node, nodes.Assign):
            self._assign(node.target, self.rank(node.node))
        elif isinstance(node, nodes.AssignBlock) and node.filter is None:
            self._assign(node.target, Rank.TEXT)
            self.read(node.body)
        elif isinstance(node, nodes.Macro):
            for name, default in zip(node.args[::-1], node.defaults[::-1], strict=False):
                self.raise_to(name.name, self.rank(default))
            self.read(node.body)
        elif isinstance(node, nodes.CallBlock) and is_generation_tag(node):
            self.read(node.body)
        elif not isinstance(node, nodes.Continue | nodes.Break):
            raise UnclearError

    def _branch(self, node: nodes.If) -> None:
        """Read both branches; where a content is known to be no string, there is no content."""
        self.decide(node.test)
        test, is_not = node.test, isinstance(node.test, nodes.Not)
        if isinstance(test, nodes.Not):
            test = test.node
        others = [*node.elif_, *node.else_]
        if not (isinstance(test, nodes.Test) and test.name == "string"):
            self.read([*node.body, *others])
            return
        self.read(others if is_not else node.body)
        self.no_texts.append(test.node)
        self.read(node.body if is_not else others)
        self.no_texts.pop()

    def _loop(self, node: nodes.For) -> None:
        rank = self.rank(node.iter)
        if rank == Rank.TEXTS:
            rank = Rank.TEXT
        elif rank == Rank.TEXT:
            rank = Rank.OPAQUE  # its characters
        target = node.target
        if rank in (Rank.FIXED, Rank.OPAQUE) and calls(node.iter, _PAIRS):
            rank = Rank.OPAQUE  # values of a message, perhaps
            if isinstance(target, nodes.Tuple) and len(target.items) == 2:
                self._assign(target.items[0], Rank.FIXED)  # of its keys, which are the same
                target = target.items[1]
        self._assign(target, rank)
        if node.test is not None:
            self.decide(node.test)
        self.read([*node.body, *node.else_])

    def _assign(self, target: nodes.Node, rank: Rank) -> None:
        if isinstance(target, nodes.Tuple):
            for item in target.items:
                self._assign(item, rank)
        elif isinstance(target, nodes.Name):
            self.raise_to(target.name, rank)
        elif isinstance(target, nodes.NSRef):
            self.raise_to(f".{target.attr}", rank)
        else:
            raise UnclearError


_PAIRS = ("items", "values", "dictsort")
"""Filters and methods that give the values of a mapping."""
