"""What a Jinja template asks about the contents of messages, read from its syntax tree.

A template that only writes contents, without looking into them, writes the same text around all of
them. One that looks for a string in them, such as `</think>`, does so for all contents without that
string. So the strings that a template looks for tell for which contents its way is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jinja2 import nodes

from tokmill.chat.jinja.ranks import Rank, Ranker, UnclearError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


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
            self.decide(node.test)
            self.read([*node.body, *node.elif_, *node.else_])
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
        elif isinstance(node, nodes.CallBlock) and _is_tag(node):
            self.read(node.body)
        elif not isinstance(node, nodes.Continue | nodes.Break):
            raise UnclearError

    def _loop(self, node: nodes.For) -> None:
        rank = self.rank(node.iter)
        if rank == Rank.TEXTS:
            rank = Rank.TEXT
        elif rank == Rank.TEXT:
            rank = Rank.OPAQUE  # its characters
        elif rank == Rank.FIXED and _calls(node.iter, ("items", "values", "dictsort")):
            rank = Rank.OPAQUE  # values of a message, perhaps
        self._assign(node.target, rank)
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


def _calls(node: nodes.Node, methods: Sequence[str]) -> bool:
    if isinstance(node, nodes.Filter):
        return node.name in methods
    return (
        isinstance(node, nodes.Call)
        and isinstance(node.node, nodes.Getattr)
        and node.node.attr in methods
    )


def _is_tag(node: nodes.CallBlock) -> bool:
    """Return whether a block is a generation tag, which only marks its text."""
    return isinstance(node.call.node, nodes.ExtensionAttribute)
