"""What a template calls and reads: filters, the sandbox, variables of settings and records."""

from __future__ import annotations

import jinja2
import pytest

from tokmill.chat.conversation import ChatError, Conversation
from tokmill.chat.jinja.environment import MARKS, compile_template, emitted_tokens
from tokmill.chat.jinja.template import JinjaTemplate
from tokmill.chat.own_templates import own_source
from tokmill.chat.reading.schemas import read_conversation
from tokmill.chat.segments import Sample
from tokmill.chat.template_source import make_template
from tokmill.errors import UsageError
from tokmill.settings.load import build_config
from tokmill.settings.sft import SftSettings


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


SOURCE = (
    "{% for m in messages %}{{ m.role }}:"
    "{% if m.role == 'assistant' and enable_thinking is defined and not enable_thinking %}"
    "<quiet>{% endif %}{{ m.content }}{{ note }};{% endfor %}"
    "{% if add_generation_prompt %}assistant:"
    "{% if enable_thinking is defined and not enable_thinking %}<quiet>{% endif %}{% endif %}"
)
MESSAGES = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]


def template(kwargs="", control=(), **settings):
    return JinjaTemplate(
        SOURCE, control={string: n for n, string in enumerate(control)},
        variables={"eos_token": "<eos>"}, where="chat.jinja",
        settings=SftSettings(template_kwargs=kwargs, **settings),
    )  # fmt: skip


def written(template, variables=None, control=()):
    sample = Sample({string: n for n, string in enumerate(control)})
    template.render(Conversation(MESSAGES, [None, None], variables=variables), sample)
    return sample


def test_the_settings_give_variables_and_a_record_goes_over_them():
    said = template('{"enable_thinking": false, "note": "!"}')
    assert written(said).whole_text() == "user:a!;assistant:<quiet>b!;"
    own = {"enable_thinking": True, "note": "?"}
    assert written(said, own).whole_text() == "user:a?;assistant:b?;"
    assert written(template()).whole_text() == "user:a;assistant:b;"


@pytest.mark.parametrize(
    "default", ["note | default('.')", "note if note is defined else '.'", "note | d('.')"]
)
def test_a_variable_that_the_template_gives_a_default_may_be_set(default):
    source = "{%- set note = " + default + " %}{% for m in messages %}{{ m.content + note }}"
    chosen = [
        JinjaTemplate(
            source + "{% endfor %}", control={}, variables={}, where="chat.jinja",
            settings=SftSettings(template_kwargs=kwargs),
        )
        for kwargs in ("", '{"note": "!"}')
    ]  # fmt: skip
    assert [template.text_of(MESSAGES) for template in chosen] == ["a.b.", "a!b!"]


def test_a_control_tokens_string_in_a_records_variable_is_text():
    sample = written(template(control=["<|end|>"]), {"note": "<|end|>"}, control=["<|end|>"])
    assert sample.whole_text() == "user:a<|end|>;assistant:b<|end|>;"
    assert "<|end|>" not in sample.turns[0].parts


def test_a_record_names_its_variables_as_trl_does():
    record = {"messages": MESSAGES, "chat_template_kwargs": {"enable_thinking": False}}
    for value in (record["chat_template_kwargs"], '{"enable_thinking": false}'):
        conversation = read_conversation(
            {**record, "chat_template_kwargs": value}, "messages", SftSettings()
        )
        assert conversation.variables == {"enable_thinking": False}
    without = {**record, "chat_template_kwargs": None}
    assert read_conversation(without, "messages", SftSettings()).variables is None


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([1], "chat_template_kwargs: expected an object, found a list of 1"),
        ("{bad", "chat_template_kwargs: expected JSON, found '{bad'"),
        ({"messages": []}, "expected variables of the template's own, found messages"),
        ({"eos_token": "x"}, "expected variables of the template's own, found eos_token"),
    ],
)
def test_variables_of_a_record_that_are_none_refuse_it(value, words):
    with pytest.raises(ChatError) as error:
        read_conversation(
            {"messages": MESSAGES, "chat_template_kwargs": value}, "messages", SftSettings()
        )
    assert words in error.value.message


def test_a_variable_that_a_template_does_not_read_is_named_with_those_that_it_reads(vocabulary):
    with pytest.raises(UsageError) as error:
        template('{"enable_thinkng": false}')
    assert str(error.value) == (
        "sft.template_kwargs: chat.jinja does not read enable_thinkng: it "
        "reads enable_thinking, note"
    )
    with pytest.raises(UsageError, match="template chatml does not read x: it reads no variables"):
        make_template(own_source("chatml"), SftSettings(template_kwargs='{"x": 1}'), vocabulary)
    with pytest.raises(UsageError, match=r"sft\.template_kwargs: tools is set by tokmill"):
        template('{"tools": []}')


@pytest.mark.parametrize("value", ["[1]", "{bad", '{"a": NaN}', 5, {"a": float("nan")}])
def test_what_is_no_json_object_is_refused(value):
    with pytest.raises(UsageError, match="template_kwargs: expected a JSON object"):
        build_config({"sft": {"template_kwargs": value}}, where="x")
