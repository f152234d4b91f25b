from __future__ import annotations

import pytest
from jinja2 import nodes

from tokmill.chat.jinja.environment import parsed
from tokmill.chat.jinja.node_checks import (
    calls,
    is_blank,
    is_constant,
    is_generation_tag,
    length_of,
)


def expression(text: str) -> nodes.Node:
    output = parsed(f"{{{{ {text} }}}}").body[0]
    assert isinstance(output, nodes.Output)
    return output.nodes[0]


def test_constants_are_compared_by_their_values():
    assert is_constant(expression("'a'"), "a")
    assert is_constant(expression("0"), 0)
    assert not is_constant(expression("a"), "a")


@pytest.mark.parametrize(("text", "blank"), [("' '", True), ("'a '", False), ("''", False)])
def test_blank_strings_hold_white_space_only(text, blank):
    assert is_blank(expression(text)) == blank


def test_the_length_of_an_expression_is_a_filter():
    assert length_of(expression("a | length")) == expression("a")
    assert length_of(expression("a.b | count")) == expression("a.b")
    assert length_of(expression("a | upper")) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [("a.items()", True), ("a | items", True), ("a.keys()", False), ("items(a)", False)],
)
def test_calls_of_methods_and_filters_are_found_by_name(text, found):
    assert calls(expression(text), ("items",)) == found


def test_generation_tags_are_no_other_call_blocks():
    tag, block = parsed(
        "{% generation %}a{% endgeneration %}{% call m() %}b{% endcall %}"
    ).find_all(nodes.CallBlock)
    assert is_generation_tag(tag)
    assert not is_generation_tag(block)
