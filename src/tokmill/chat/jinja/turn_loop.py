"""Templates that write one message after another: the loop over the messages, found in the source.

Most templates write a beginning, then each message in a loop, then perhaps a generation prompt:

    {{ bos_token }}                                          beginning
    {% for m in messages %}<|{{ m.role }}|>…{% endfor %}     turns
    {% if add_generation_prompt %}<|assistant|>{% endif %}   ending

If the beginning reads the first message alone, and a turn reads no later message but perhaps the
next one, then a shorter conversation is written alike up to its last turn. The rules below accept
such sources only; `jinja.turns` renders them, and everything else is rendered prefix by prefix.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, NamedTuple

from jinja2 import nodes

from tokmill.chat.jinja.turn_reads import (
    DONE,
    PROMPT,
    OtherFormError,
    Reads,
    is_name,
    is_rest,
    mark_reads,
    statement,
    stored,
)

_SILENT = (
    nodes.Assign, nodes.For, nodes.If, nodes.Name, nodes.Const, nodes.Getattr, nodes.Getitem,
    nodes.Slice, nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.Test,
    nodes.Sub, nodes.NSRef, nodes.Neg, nodes.Filter, nodes.Call, nodes.Keyword,
)  # fmt: skip
"""Statements of these write nothing and, as `_is_silent` bounds them, raise no error."""


class TurnLoop(NamedTuple):
    """Where the loop over the messages stands among a template's statements.

    `at`: its position. `dead`: positions of statements before it without any effect on the text.
    `ending_reads_names`: whether the ending reads variables that the template sets before it;
    `ending_varies`: whether it reads these, the messages or the tools.
    """

    at: int
    dead: frozenset[int]
    reads: Reads
    ending_reads_names: bool
    ending_varies: bool


def trace_turns(tree: nodes.Template) -> TurnLoop | None:
    """Add the filters to a parsed template, in place; None if it is not of this form."""
    body = _statements(tree)
    try:
        return _traced(tree, body)
    except OtherFormError:
        return None


def keep_frame(tree: nodes.Template, found: TurnLoop) -> nodes.Template:
    """Return a parsed template without its turns, in place; a filter marks where they were."""
    body = _statements(tree)
    before = [node for i, node in enumerate(body[: found.at]) if i not in found.dead]
    tree.body = [*before, statement(DONE), *body[found.at + 1 :]]
    return tree


def _statements(tree: nodes.Template) -> list[nodes.Node]:
    """Return the statements at the top of a template, texts and expressions one by one."""
    tree.body = list(
        chain.from_iterable(
            [nodes.Output([child], lineno=node.lineno) for child in node.nodes]
            if isinstance(node, nodes.Output)
            else [node]
            for node in tree.body
        )
    )
    return tree.body


def _traced(tree: nodes.Template, body: list[nodes.Node]) -> TurnLoop:
    lists = _message_lists(body)
    loops = [
        i
        for i, node in enumerate(body)
        if isinstance(node, nodes.For) and is_name(node.iter, lists) and not _is_silent(node)
    ]
    if len(loops) != 1:
        raise OtherFormError
    at = loops[0]
    loop: Any = body[at]
    if loop.test or loop.else_ or loop.recursive or not isinstance(loop.target, nodes.Name):
        raise OtherFormError
    dead = _dead(body, at, lists)
    beginning = [node for i, node in enumerate(body[:at]) if i not in dead]
    ending = body[at + 1 :]
    names = {name for node in (*body[:at], loop) for name in stored(node)}
    read = {name.name for node in ending for name in _names(node)}
    reads = mark_reads(beginning, loop, ending, lists)
    marked = iter(beginning)
    # What has no effect stays, so that a rendering of the whole conversation reads all of it.
    kept = [node if i in dead else next(marked) for i, node in enumerate(body[:at])]
    tree.body = [*kept, loop, statement(DONE), *ending]
    reads_names = not names.isdisjoint(read)
    reads_others = not read.isdisjoint({"tools", *lists})
    return TurnLoop(at, frozenset(dead), reads, reads_names, reads_names or reads_others)


def _message_lists(body: list[nodes.Node]) -> set[str]:
    """Return the names that hold all messages, or all but the first."""
    lists = {"messages"}
    assigned = [node for top in body for node in (top, *top.find_all(nodes.Assign))]
    for node in assigned:
        if isinstance(node, nodes.Assign) and _is_list(node.node, lists):
            if not isinstance(node.target, nodes.Name):
                raise OtherFormError
            lists.add(node.target.name)
    return lists


def _is_list(node: Any, lists: set[str]) -> bool:
    if isinstance(node, nodes.CondExpr):
        return _is_list(node.expr1, lists) and _is_list(node.expr2, lists)
    return is_name(node, lists) or is_rest(node, lists)


def _dead(body: list[nodes.Node], at: int, lists: set[str]) -> set[int]:
    """Return statements before a loop that write nothing and set nothing that is read."""
    dead = {i for i, node in enumerate(body[:at]) if _is_silent(node) or _is_default(node)}
    dead -= {i for i in dead if not lists.isdisjoint(stored(body[i]))}
    while True:
        live = [node for i, node in enumerate(body) if i not in dead]
        read = {name.name for node in live for name in _names(node)}
        read |= {ref.name for node in live for ref in node.find_all(nodes.NSRef)}
        needed = {
            i for i in dead if not _is_default(body[i]) and not read.isdisjoint(stored(body[i]))
        }
        if not needed:
            return dead
        dead -= needed


def _is_default(node: Any) -> bool:
    """Return whether a statement sets the generation prompt where it is undefined: it never is."""
    if not isinstance(node, nodes.If) or node.elif_ or node.else_:
        return False
    test, wanted = node.test, "undefined"
    if isinstance(test, nodes.Not):
        test, wanted = test.node, "defined"
    return isinstance(test, nodes.Test) and test.name == wanted and is_name(test.node, {PROMPT})


def _is_silent(node: nodes.Node) -> bool:
    if not isinstance(node, nodes.Assign | nodes.For | nodes.If):
        return False
    return all(isinstance(n, _SILENT) and _is_safe(n) for n in (node, *node.find_all(nodes.Node)))


def _is_safe(node: Any) -> bool:
    """Return whether evaluating this node itself cannot raise an error."""
    if isinstance(node, nodes.Filter):
        return node.name in ("length", "count")
    if isinstance(node, nodes.Call):
        return is_name(node.node, {"namespace"}) or _searches_content(node.node)
    if isinstance(node, nodes.Getattr | nodes.Getitem):
        return isinstance(node.node, nodes.Name) or _searches_content(node)
    return True


def _searches_content(node: Any) -> bool:
    """Return whether an expression is such as `message.content.startswith`."""
    if not isinstance(node, nodes.Getattr) or node.attr not in ("startswith", "endswith"):
        return False
    owner: Any = node.node
    return isinstance(owner, nodes.Getattr) and owner.attr == "content"


def _names(node: nodes.Node) -> list[nodes.Name]:
    """Return the variables that a statement reads."""
    found = [node] if isinstance(node, nodes.Name) else []
    return [name for name in (*found, *node.find_all(nodes.Name)) if name.ctx == "load"]
