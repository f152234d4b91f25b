"""Questions about nodes of a template's syntax tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jinja2 import nodes

if TYPE_CHECKING:
    from collections.abc import Collection


def is_constant(node: nodes.Node, value: object) -> bool:
    """Return whether a node is this number or string."""
    return isinstance(node, nodes.Const) and node.value == value


def is_blank(node: nodes.Node) -> bool:
    """Return whether a node is a string of white space."""
    return isinstance(node, nodes.Const) and str(node.value).isspace()


def length_of(node: nodes.Node) -> nodes.Expr | None:
    """Return the expression whose length a node is; None if it is something else."""
    if isinstance(node, nodes.Filter) and node.name in ("length", "count"):
        return node.node
    return None


def calls(node: nodes.Node, names: Collection[str]) -> bool:
    """Return whether a node is one of these filters, or a call of one of these methods."""
    if isinstance(node, nodes.Filter):
        return node.name in names
    return (
        isinstance(node, nodes.Call)
        and isinstance(node.node, nodes.Getattr)
        and node.node.attr in names
    )


def is_generation_tag(node: nodes.Node) -> bool:
    """Return whether a node is a block between generation tags, which only mark it."""
    return isinstance(node, nodes.CallBlock) and isinstance(
        node.call.node, nodes.ExtensionAttribute
    )
