from __future__ import annotations

import jinja2
import pytest

from tokmill.chat.jinja.turn_loop import TurnLoop, keep_frame, trace_turns
from tokmill.chat.jinja.turn_reads import DONE, Reads

TURNS = "{% for m in messages %}{{ m.content }}{% endfor %}"
PROMPT = "{% if add_generation_prompt %}>{% endif %}"


def found(source):
    return trace_turns(jinja2.Environment().parse(source))


def frame(source):
    """Give the statements of a template without its turns, by the names of their nodes."""
    environment = jinja2.Environment()
    loop = trace_turns(environment.parse(source))
    return [type(node).__name__ for node in keep_frame(environment.parse(source), loop).body]


def test_the_loop_is_found_behind_the_beginning():
    assert found(TURNS) == TurnLoop(0, frozenset(), Reads(False, False), False, False)
    assert found("a{{ bos_token }}" + TURNS + PROMPT).at == 2


def test_an_ending_varies_if_it_reads_more_than_the_generation_prompt():
    assert not found(TURNS + PROMPT).ending_varies
    assert found(TURNS + "{{ tools }}").ending_varies
    asks = found(TURNS + "{{ messages[-1].role if add_generation_prompt }}")
    assert (asks.ending_varies, asks.reads.ending_reads) == (True, True)
    named = found("{% set end = bos_token %}" + TURNS + "{{ end }}")
    assert (named.ending_varies, named.ending_reads_names) == (True, True)
    assert not named.reads.ending_reads


def test_a_turn_may_read_the_generation_prompt():
    assert found(TURNS.replace("{{", PROMPT + "{{")).reads.turns_ask
    assert not found(TURNS + PROMPT).reads.turns_ask


SETS = "{% set a = messages|length %}{% set b = a %}{% set c = 1 %}"


def test_what_sets_variables_that_nothing_reads_is_dead():
    assert found(SETS + TURNS).dead == {0, 1, 2}
    assert found(SETS + TURNS + "{{ c }}").dead == {0, 1}
    assert found(SETS + TURNS + "{{ b }}") is None  # the number of messages reaches the text


@pytest.mark.parametrize(
    "statement",
    [
        "{% set a = messages[0].name.first %}",
        "{% set a = messages | map(attribute='x') %}",
        "{% for m in messages %}{% set a = m.content.split('a')[1] %}{% endfor %}",
        "{% for m in messages %}{% set a = m.name.startswith('a') %}{% endfor %}",
        "{% if messages|length > 9 %}{{ raise_exception('long') }}{% endif %}",
    ],
)
def test_what_may_raise_an_error_is_not_dead(statement):
    assert not getattr(found(statement + TURNS), "dead", False)


def test_a_frame_has_a_mark_in_place_of_the_turns_and_no_dead_statement():
    environment = jinja2.Environment()
    source = "a" + SETS + TURNS + "b{{ c }}"
    assert frame(source) == ["Output", "Assign", "ExprStmt", "Output", "Output"]
    tree = keep_frame(environment.parse(source), found(source))
    assert tree.body[2].node.name == DONE


@pytest.mark.parametrize(
    ("name", "is_list"),
    [
        ("messages[1:]", True),
        ("messages[0:]", True),
        ("messages", True),
        ("messages[1:] if tools else messages", True),
        ("messages[:1]", False),
        ("messages[::2]", False),
        ("messages[1:] if tools else []", False),
        ("messages[n:]", False),
    ],
)
def test_the_turns_are_all_messages_or_all_but_the_first(name, is_list):
    source = f"{{% set rest = {name} %}}" + TURNS.replace("in messages", "in rest")
    assert (found(source) is not None) is is_list


def test_a_list_of_messages_has_no_second_meaning():
    rest = "{% if tools %}{% set rest = messages[1:] %}{% else %}{% set rest = OTHER %}{% endif %}"
    source = rest + TURNS.replace("in messages", "in rest")
    assert found(source.replace("OTHER", "messages")) is not None
    assert found(source.replace("OTHER", "tools")) is None
