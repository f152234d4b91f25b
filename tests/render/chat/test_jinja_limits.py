from __future__ import annotations

import pytest

from tokmill.render.chat.jinja_env import compile_template
from tokmill.render.chat.jinja_limits import STEPS, EndlessError, steps_for

LOOP = "{% for a in xs %}{% for b in xs %}{% endfor %}{% endfor %}"


def rendered(source, n_steps=100, **variables):
    compiled = compile_template(source, date="", where="chat.jinja")
    return compiled.template.render({STEPS: [n_steps], **variables})


def test_loops_are_charged_for_their_length_as_they_begin():
    assert rendered(LOOP, n_steps=3 + 9, xs=[1, 2, 3]) == ""
    with pytest.raises(EndlessError, match="its loops do not end within reason"):
        rendered(LOOP, n_steps=3 + 9 - 1, xs=[1, 2, 3])


def test_what_has_no_length_is_charged_as_it_goes():
    source = "{% for x in xs|map('upper') %}{{ x }}{% endfor %}"
    assert rendered(source, n_steps=2, xs="ab") == "AB"
    with pytest.raises(EndlessError):
        rendered(source, n_steps=1, xs="ab")


def test_loops_know_their_place_and_what_is_undefined_is_empty():
    source = (
        "{% for x in xs %}{{ loop.index }}/{{ loop.length }}{{ x }}{% if loop.last %}.{% endif %}"
    )
    assert rendered(source + "{% else %}none{% endfor %}", xs="ab") == "1/2a2/2b."
    assert rendered(source + "{% else %}none{% endfor %}") == "none"
    assert (
        rendered("{% for k, v in d.items() if v %}{{ k }}{% endfor %}", d={"a": 0, "b": 1}) == "b"
    )


def test_a_rendering_without_a_count_is_not_counted():
    compiled = compile_template(LOOP, date="", where="chat.jinja")
    assert compiled.template.render({"xs": range(1000)}) == ""


@pytest.mark.parametrize(
    ("source", "expected"),
    [("{{ 'ab' * 3 }}", "ababab"), ("{{ 3 * [1] }}", "[1, 1, 1]"), ("{{ 2 ** 10 }}", "1024"),
     ("{{ 2 * 1.5 }}", "3.0"), ("{{ 2 ** -1 }}", "0.5"), ("{{ 1.5 ** 2 }}", "2.25"),
     ("{% set x = 'a' ~ 1 %}{{ x }}", "a1"), ("{% set x %}b{% endset %}{{ x + 'c' }}", "bc"),
     ("{% set x | upper %}b{% endset %}{{ x }}", "B")],
)  # fmt: skip
def test_what_is_small_is_as_ever(source, expected):
    assert rendered(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'x' * 10 ** 12 }}",
        "{{ 10 ** 12 * [1] }}",
        "{{ 7 ** (7 ** 9) }}",
        "{% set n = namespace(x=3) %}{% for i in range(64) %}{% set n.x = n.x * n.x %}{% endfor %}",
    ],
)
def test_a_product_that_would_be_huge_is_not_computed(source):
    with pytest.raises(EndlessError, match="gives here is too large for a chat template"):
        rendered(source)


def test_a_long_conversation_may_be_looked_at_from_each_of_its_messages():
    assert steps_for(10)[0] < 2 * steps_for(0)[0]
    assert steps_for(100_000)[0] > 100_000**2
