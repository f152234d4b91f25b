from __future__ import annotations

import json
import subprocess
import sys

import pytest
from jinja2 import TemplateError

from tokmill.chat.jinja.environment import compile_template
from tokmill.chat.limits import OUT_OF_MEMORY, OUT_OF_TIME

MESSAGES = [{"role": "user", "content": "x" * 1000}, {"role": "assistant", "content": "reply"}]

DOUBLED = (
    "{% set n = namespace(x='x') %}{% for i in range(40) %}{% set n.x = n.x + n.x %}{% endfor %}"
)
NESTED = (
    "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}"
)
BIG = "{% set n = namespace(x='x') %}{% for i in range(21) %}{% set n.x = n.x + n.x %}{% endfor %}"

ATTACKS = {
    "recursion of a macro": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "recursion of a loop": "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "recursion that fans out": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}"
    "{% endmacro %}{{ m(40) }}",
    "nested macros": "".join(
        f"{{% macro m{i}() %}}{{{{ m{i - 1}() }}}}{{{{ m{i - 1}() }}}}{{% endmacro %}}"
        if i
        else "{% macro m0() %}x{% endmacro %}"
        for i in range(40)
    )
    + "{{ m39() }}",
    "width of %": "{{ '%09999999999d' % 1 }}",
    "precision of %": "{{ '%.9999999999f' % 1 }}",
    "width of str.format": "{{ '{:9999999999}'.format(1) }}",
    "method center": "{{ 'x'.center(10000000000) }}",
    "indent by a text": BIG + "{{ (('x\n' * 4000)|indent(n.x)) }}",
    "expandtabs": "{{ '\t'.expandtabs(2000000000) }}",
    "method replace": BIG + "{{ n.x.replace('x', n.x) }}",
    "method join": BIG + "{{ n.x.join(range(99999)|map('string')) }}",
    "join of one text many times": BIG + "{{ ''.join([n.x] * 9999) }}",
    "translate": BIG + "{{ n.x.translate({120: n.x}) }}",
    "tojson indent by a text": BIG + "{{ range(999)|list|tojson(indent=n.x) }}",
    "tojson of nested lists": NESTED + "{{ n.x|tojson }}",
    "print of nested lists": NESTED + "{{ n.x }}",
    "comparison of nested lists": NESTED
    + "{% set m = namespace(x=[1]) %}{% for i in range(60) %}{% set m.x = [m.x, m.x] %}{% endfor %}"
    "{{ n.x == m.x }}",
    "hash of nested tuples": "{% set n = namespace(x=(1,)) %}"
    "{% for i in range(60) %}{% set n.x = (n.x, n.x) %}{% endfor %}{{ {}.get(n.x) }}",
    "depth of lists": "{% set n = namespace(x=[1]) %}"
    "{% for i in range(5000) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x }}",
    "* of a text": "{{ 'x' * 10 ** 12 }}",
    "**": "{{ 7 ** (7 ** 9) }}",
    "* of numbers": "{% set n = namespace(x=3) %}"
    "{% for i in range(64) %}{% set n.x = n.x * n.x %}{% endfor %}",
    "% of large numbers": "{{ ('f' * 4000000)|int(0, 16) % ('e' * 2000000)|int(0, 16) }}",
    "products of ranges": "{% for a in range(9999) %}{% for b in range(9999) %}"
    "{% endfor %}{% endfor %}",
    "printing in loops": "{% for a in range(99999) %}{% for b in range(999) %}0123456789abcdef"
    "{% endfor %}{% endfor %}",
    "a sum that doubles": DOUBLED,
    "~ that doubles": DOUBLED.replace("n.x + n.x", "n.x ~ n.x"),
    "a macro that keeps text": BIG + "{% macro m() %}{{ n.x }}{% endmacro %}"
    "{% set k = namespace(x=[]) %}"
    "{% for i in range(999) %}{% set k.x = k.x + [m()] %}{% endfor %}",
    "list of a large text": BIG + "{{ (n.x * 8)|list|length }}",
    "slices of a large text": BIG + "{% for i in range(9999) %}{% set y = n.x[1:] %}{% endfor %}",
    "batch": "{{ [1]|batch(10000000000, 'x')|list }}",
    "round": "{{ 1|round(10000000000, 'floor') }}",
    "to_bytes": "{{ (1).to_bytes(10000000000, 'big') }}",
    "sum of lists": "{{ ([range(999)|list] * 99999)|sum(start=[]) }}",
    "dates": "{{ strftime_now('%99999999Y' * 99) }}",
}  # fmt: skip

FOLDED = {
    "a power": "9 ** (9 ** 9)", "a text": "'a' * 10 ** 11", "a list": "[0] * 10 ** 11",
    "a filter": "'a'|center(10 ** 10)", "a test": "('a' * 10 ** 10) is upper",
    "~": "'a' * 10 ** 10 ~ 'b'",
    "a slice": "('a' * 10 ** 10)[::2]", "a comparison": "'a' * 10 ** 10 in 'b' * 10 ** 10",
    "a key": "{'a' * 10 ** 10: 1}", "a condition": "1 if 9 ** (9 ** 9) else 0",
    "an argument": "namespace(x='a'|center(10 ** 10))", "a sign": "-(9 ** (9 ** 9))",
}  # fmt: skip
"""Constant expressions, which Jinja evaluates while it compiles unless it is told not to."""

DEAD = {
    **{name: "{% if 0 %}{{ " + source + " }}{% endif %}" for name, source in FOLDED.items()},
    "a variable": "{% if 0 %}{% set x = 9 ** (9 ** 9) %}{% endif %}",
    "a block": "{% if 0 %}{% generation %}{{ 9 ** (9 ** 9) }}{% endgeneration %}{% endif %}",
    "a loop": "{% if 0 %}{% for x in 'a' * 10 ** 10 %}{% endfor %}{% endif %}",
    "an included name": "{% if 0 %}{% include 'a' * 10 ** 10 %}{% endif %}",
    "a macro": "{% macro m(x=9 ** (9 ** 9)) %}{{ 'a' * 10 ** 10 }}{% endmacro %}",
    "a filter's block": "{% if 0 %}{% filter center(10 ** 10) %}a{% endfilter %}{% endif %}",
}

BROKEN = {
    "nested parentheses": "{{ " + "(" * 20_000 + "1" + ")" * 20_000 + " }}",
    "nested conditions": "{% if x %}" * 2000 + "{% endif %}" * 2000,
    "a long sum": "{{ " + "+".join(["x"] * 20_000) + " }}",
    "a chain of filters": "{{ x" + "|upper" * 20_000 + " }}",
    "many branches": "{% if a %}" + "{% elif b %}" * 20_000 + "{% endif %}",
    "a number of many digits": "{{ " + "9" * 10_000 + " }}",
    "an escape without its end": r"{{ '\x' }}",
    "a long name of a filter": "{{ x|" + "y" * 100_000 + " }}",
}

CHILD = """
import json, os, sys
from tokmill.chat import limits
from tokmill.chat.control_strings import Vocabulary
from tokmill.chat.conversation import ChatError, Conversation
from tokmill.chat.render_pool import Writers
from tokmill.errors import TokmillError
from tokmill.settings.sft import SftSettings
limits.TIME_S = 0.15
attacks, messages = json.load(sys.stdin)
settings = SftSettings(schema="messages", date="2026-01-01")
for source in attacks:
    sys.stdout.flush()
    child = os.fork()
    if not child:
        vocabulary = Vocabulary({"<eos>": 0}, "<eos>", "", {})
        writers = Writers(source, limits.ChildLimits(lambda _: None))
        try:
            writers.emitted(["<eos>"])
            writers.write(vocabulary, settings, Conversation(messages, [None, None]))
            os._exit(10)
        except (ChatError, TokmillError) as error:
            os._exit(2 if "\\n" not in str(error) and len(str(error)) < 400 else 3)
        except MemoryError:
            os._exit(limits.OUT_OF_MEMORY)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status))
"""


BODY = "{% for message in messages %}{{ message.content }}{% endfor %}"


def outcomes_of(sources):
    """What becomes of each template in a process of its own, with low limits."""
    child = subprocess.run(
        [sys.executable, "-c", CHILD], input=json.dumps([[*sources.values()], MESSAGES]),
        capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    return dict(zip(sources, map(int, child.stdout.split()), strict=True))


@pytest.fixture(scope="module")
def outcomes():
    """What becomes of each attack, which the chats that tokmill tries do not meet."""
    guard = "{% if messages[0].content.startswith('xxx') %}"
    return outcomes_of(
        {name: guard + source + "{% endif %}" + BODY for name, source in ATTACKS.items()}
    )


@pytest.fixture(scope="module")
def outcomes_at_once():
    """What becomes of a template that is hostile before it is rendered."""
    sources = {**{f"dead: {name}": source for name, source in DEAD.items()}, **BROKEN}
    live = {name: "{{ " + source + " }}" for name, source in FOLDED.items()}
    return outcomes_of({name: source + BODY for name, source in {**sources, **live}.items()})


RENDERED, REFUSED = 10, 2
WITHOUT_END = (
    "recursion of a macro", "recursion that fans out", "nested macros", "products of ranges",
    "printing in loops", "width of %", "* of a text", "**", "a sum that doubles",
    "hash of nested tuples",
)  # fmt: skip
"""Attacks that no machine is fast enough, or large enough, to render."""


@pytest.mark.parametrize("name", ATTACKS)
def test_a_hostile_template_ends_within_the_limits(name, outcomes):
    assert outcomes[name] in (RENDERED, REFUSED, OUT_OF_TIME, OUT_OF_MEMORY)


@pytest.mark.parametrize("name", WITHOUT_END)
def test_a_template_without_end_is_refused_or_ends_at_a_limit(name, outcomes):
    assert outcomes[name] in (REFUSED, OUT_OF_TIME, OUT_OF_MEMORY)


@pytest.mark.parametrize("name", DEAD)
def test_constants_of_a_branch_that_is_not_taken_are_not_evaluated(name, outcomes_at_once):
    assert outcomes_at_once[f"dead: {name}"] == RENDERED


@pytest.mark.parametrize("name", FOLDED)
def test_constants_that_are_evaluated_end_within_the_limits(name, outcomes_at_once):
    assert outcomes_at_once[name] in (REFUSED, OUT_OF_TIME, OUT_OF_MEMORY)


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_compiled_is_refused_with_one_short_line(name, outcomes_at_once):
    assert outcomes_at_once[name] in (REFUSED, OUT_OF_TIME, OUT_OF_MEMORY)


def rendered(source, **variables):
    return compile_template(source, date="", where="chat.jinja").render(variables)


@pytest.mark.parametrize(
    ("source", "expected"),
    [("{{ 'ab' * 3 }}", "ababab"), ("{{ 3 * [1] }}", "[1, 1, 1]"), ("{{ 2 ** 10 }}", "1024"),
     ("{{ 2 * 1.5 }}", "3.0"), ("{{ 2 ** -1 }}", "0.5"), ("{{ 1.5 ** 2 }}", "2.25"),
     ("{{ 7 % 4 }}{{ 7 // 4 }}", "31"), ("{{ '%05d|%-4s|%%' % (7, 'a') }}", "00007|a   |%"),
     ("{{ '%(a)s' % {'a': [1]} }}", "[1]"), ("{{ '{:>3}{a!r}'.format(1, a='b') }}", "  1'b'"),
     ("{{ '{a}'.format_map({'a': 1}) }}", "1"), ("{{ '%s-%s'|format(1, 'b') }}", "1-b"),
     ("{% set x = 'a' ~ 1 ~ none %}{{ x }}", "a1None"),
     ("{% set x %}b{% endset %}{{ x + 'c' }}", "bc"),
     ("{% set x | upper %}b{% endset %}{{ x }}", "B"), ("{{ 'a' + 'b' + 'c' + 'd' }}", "abcd"),
     ("{{ " + " + ".join("'x'" for _ in range(30)) + " }}", "x" * 30),
     ("{{ 'abc'[1:] }}{{ [1, 2, 3][::-1] }}", "bc[3, 2, 1]"), ("{{ {'a': 1}.a }}{{ {}.b }}", "1"),
     ("{{ {'a': 1}.items()|list }}", "[('a', 1)]"), ("{{ {'get': 1}['get'] }}", "1"),
     ("{{ [3, 1]|sort }}{{ [1, 1]|unique|list }}", "[1, 3][1]"),
     ("{{ ['a', 'b']|map('upper')|join(', ') }}", "A, B"),
     ("{{ ', '.join(['a']|map('upper')) }}", "A"),
     ("{{ [[1, 2], [1, 2]][0] == [1, 2] }}{{ 'a' in 'abc' }}{{ [1] in [[1]] }}", "TrueTrueTrue"),
     ("{{ [1]|tojson(indent=2) }}", "[\n  1\n]"),
     ("{{ 'x'|center(5) }}|{{ 'y'.rjust(3) }}", "  x  |  y"),
     ("{{ 'a\tb'.expandtabs(4) }}{{ 'aXa'.replace('a', 'bb') }}", "a   bbbXbb"),
     ("{{ 'a-b'.split('-') }}{{ 'a b'.rsplit(None, 1) }}", "['a', 'b']['a', 'b']"),
     ("{% macro m(x) %}{% if x %}{{ m(x - 1) }}{{ x }}{% endif %}{% endmacro %}{{ m(9) }}",
      "123456789"),
     ("{% for x in [[1, [2]]] recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}", "12"),
     ],
)  # fmt: skip
def test_what_is_small_is_as_ever(source, expected):
    assert rendered(source) == expected


def test_loops_know_their_place_and_what_is_undefined_is_empty():
    source = (
        "{% for x in xs %}{{ loop.index }}/{{ loop.length }}{{ x }}{% if loop.last %}.{% endif %}"
    )
    assert rendered(source + "{% else %}none{% endfor %}", xs="ab") == "1/2a2/2b."
    assert rendered(source + "{% else %}none{% endfor %}") == "none"
    assert rendered("{% for x in xs|map('upper') %}{{ x }}{% endfor %}", xs="ab") == "AB"
    assert (
        rendered("{% for k, v in d.items() if v %}{{ k }}{% endfor %}", d={"a": 0, "b": 1}) == "b"
    )


@pytest.mark.parametrize(
    "source", ["{{ [1]|map('string') }}", "{{ {}.items }}", "{{ namespace() }}"]
)
def test_a_value_whose_text_is_an_address_is_not_printed(source):
    with pytest.raises(TemplateError, match="it prints a value that has no text"):
        rendered(source)
