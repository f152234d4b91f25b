from __future__ import annotations

import jinja2
import pytest

from tokmill.chat.jinja.environment import MARKS, compile_template, emitted_tokens, source_facts
from tokmill.errors import UsageError


def rendered(source, date="", **variables):
    compiled = compile_template(source, date=date, where="chat.jinja")
    return compiled.render({MARKS: ("[", "]"), **variables})


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("x|tojson", '{"b": "<é猫>", "a": 1}'),
        ("x|tojson(ensure_ascii=True)", '{"b": "<\\u00e9\\u732b>", "a": 1}'),
        ("x|tojson(sort_keys=true, separators=(',', ':'))", '{"a":1,"b":"<é猫>"}'),
        ("x|tojson(indent=1)", '{\n "b": "<é猫>",\n "a": 1\n}'),
        ("x|tojson(indent=0)", '{\n"b": "<é猫>",\n"a": 1\n}'),
        ("x|tojson(false, none, none, 0)", '{"b": "<é猫>", "a": 1}'),
        ("x|tojson(sort_keys=unknown)", '{"b": "<é猫>", "a": 1}'),
    ],
)
def test_json_is_written_in_the_order_given_and_without_html_escapes(call, expected):
    assert rendered("{{ " + call + " }}", x={"b": "<é猫>", "a": 1}) == expected


def test_a_template_raises_in_its_own_words():
    with pytest.raises(jinja2.TemplateError, match="roles must alternate"):
        rendered("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize(
    "source",
    [
        "{{ xs.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ namespace(_x=1) }}",
        "{% set ns = namespace() %}{% set ns._x = 1 %}",
        "{{ dict.__class__() }}",
    ],
)
def test_the_sandbox_lets_nothing_out_and_changes_nothing(source):
    with pytest.raises(jinja2.TemplateError):
        rendered(source, xs=[])


def test_a_template_that_rolls_dice_is_refused():
    with pytest.raises(
        UsageError, match=r"chat\.jinja:1: not a Jinja template: No filter named 'r"
    ):
        compile_template("{{ xs|random }}", date="", where="chat.jinja")
    with pytest.raises(jinja2.UndefinedError, match="'lipsum' is undefined"):
        rendered("{{ lipsum() }}")


def test_a_syntax_error_is_named_with_its_line():
    with pytest.raises(UsageError) as error:
        compile_template("a\n{{ x y }}\nb", date="", where="chat.jinja")
    assert str(error.value).startswith("chat.jinja:2: not a Jinja template: expected token")


def test_what_jinja_takes_and_python_does_not_is_a_usage_error_as_well():
    source = "{% if messages %}{% break %}{% endif %}"
    with pytest.raises(UsageError, match=r"chat\.jinja: not a Jinja template: 'break' outside"):
        compile_template(source, date="", where="chat.jinja")


def test_today_is_the_date_given():
    assert rendered("{{ strftime_now('%d %b %Y') }}", date="2026-01-02") == "02 Jan 2026"


def test_a_template_that_asks_for_today_needs_a_date():
    with pytest.raises(UsageError) as error:
        compile_template("{{ strftime_now('%Y') }}", date="", where="chat.jinja")
    assert str(error.value) == (
        "chat.jinja: the template writes today's date, which would make every run another dataset: "
        "give the date to write, --date=YYYY-MM-DD"
    )
    compile_template("{% raw %}{{ strftime_now() }}{% endraw %}", date="", where="chat.jinja")


def test_a_date_in_another_form_is_refused():
    with pytest.raises(UsageError, match=r"must be YYYY-MM-DD, found '2 Jan' \(--date\)"):
        compile_template("", date="2 Jan", where="chat.jinja")


def test_marks_stand_around_what_a_generation_block_gives():
    source = "{% for m in ms %}<{% generation %}{{ m }}!{% endgeneration %}>{% endfor %}"
    assert rendered(source, ms=["a", ""]) == "<[a!]><[!]>"


def test_a_variable_set_in_a_generation_block_is_not_seen_outside():
    source = "{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}"
    assert rendered(source) == "[2]1"


@pytest.mark.parametrize(
    ("source", "has_tags", "is_direct"),
    [
        ("{{ messages }}", False, True),
        ("{% raw %}{% generation %}{% endgeneration %}{% endraw %}", False, True),
        ("{%- generation -%} a {%- endgeneration -%}", True, True),
        ("{% for m in ms %}{% if m %}{% generation %}a{% endgeneration %}{% endif %}{% endfor %}",
         True, True),
        ("{% macro f() %}{% generation %}a{% endgeneration %}{% endmacro %}{{ f() }}", True, False),
        ("{% set x %}{% generation %}a{% endgeneration %}{% endset %}{{ x }}", True, False),
        ("{% filter upper %}{% generation %}a{% endgeneration %}{% endfilter %}", True, False),
        ("{% generation %}{% generation %}a{% endgeneration %}{% endgeneration %}", True, True),
        ("{% for m in x recursive %}{% generation %}a{% endgeneration %}{% endfor %}", True, False),
    ],
)  # fmt: skip
def test_a_template_is_known_by_where_its_tags_stand(source, has_tags, is_direct):
    assert source_facts(source)[:2] == (has_tags, is_direct)


def test_emitted_tokens_are_those_that_the_template_writes():
    source = (
        "{# <comment> #}\n  {{- '<|im_start|>' + m.role }}<think>{{ x['</think>'] }}"
        "{% if '<tool_call>' in x %}{% endif %}"
    )
    added = [
        "<|im_start|>",
        "<think>",
        "</think>",
        "<tool_call>",
        "<other>",
        "<comment>",
        "  ",
        "\n",
    ]
    assert emitted_tokens(source, added) == {"<|im_start|>", "<think>", "</think>", "<tool_call>"}


def test_a_source_that_is_not_jinja_emits_nothing():
    assert emitted_tokens("{% if <think>", ["<think>"]) == set()
