from __future__ import annotations

import functools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.chat.conversation import ChatError, Conversation
from tokmill.chat.jinja.template import JinjaTemplate
from tokmill.chat.segments import Kind, Sample, columns_of
from tokmill.errors import UsageError
from tokmill.settings.sft import SftSettings

CONTROL = {"<bos>": 0, "<eos>": 1, "<|im_start|>": 2, "<|im_end|>": 3, "<think>": 4, "</think>": 5}
VARIABLES = {"bos_token": "<bos>", "eos_token": "<eos>"}

CHATML = """\
{%- for m in messages %}
    {{- '<|im_start|>' + m.role + '\\n' }}
    {%- if m.role == 'assistant' %}
        {%- generation %}
        {{- m.content + '<|im_end|>\\n' }}
        {%- endgeneration %}
    {%- else %}
        {{- m.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
NO_HIDDEN_TAGS = CHATML.replace("{%- generation %}", "").replace("{%- endgeneration %}", "")
OUTSIDE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}:"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
    "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
)


def user(content):
    return {"role": "user", "content": content}


def bot(content, **more):
    return {"role": "assistant", "content": content, **more}


@functools.cache
def template(source, *, parse=False, **settings):
    return JinjaTemplate(
        source, control=CONTROL, variables=VARIABLES, settings=SftSettings(**settings),
        where="chat.jinja", parse=parse,
    )  # fmt: skip


def sample_of(source, *messages, weights=None, tools=None, **options):
    sample = Sample(CONTROL)
    weights = [None] * len(messages) if weights is None else weights
    conversation = Conversation(list(messages), weights, tools)
    template(source, **options).render(conversation, sample)
    return sample


def written(source, *messages, **options):
    """Give each turn: role, then kind and text of each segment, control tokens without quotes."""
    sample = sample_of(source, *messages, **options)
    turns = [[turn.role] for turn in sample.turns]
    columns = columns_of([sample])
    text, ids, table = columns.text.to_pylist(), columns.ids, columns.table
    for part, id_, kind, turn in zip(text, ids, table.kinds, table.turns, strict=True):
        turns[turn].append(f"{Kind(kind).name} {part if id_ >= 0 else repr(part)}")
    return turns


def spans(source, *messages, **options):
    """Give the text of each reply's content, end of turn and suffix."""
    turns = written(source, *messages, **options)
    kept = ("CONTENT", "EOT ", "SUFFIX ")
    return [
        [part for part in turn if part.startswith(kept)] for turn in turns if turn[0] == "assistant"
    ]


def refusal(source, *messages, **options):
    with pytest.raises(ChatError) as error:
        sample_of(source, *messages, **options)
    return error.value.reason


REPLY = [
    "assistant", "HEADER <|im_start|>", "HEADER 'assistant\\n'", "CONTENT 'Hello'",
    "EOT <|im_end|>", "SUFFIX '\\n'",
]  # fmt: skip
ASKED = ["user", "OTHER <|im_start|>", "OTHER 'user\\nHi'", "OTHER <|im_end|>", "OTHER '\\n'"]


@pytest.mark.parametrize("source", [CHATML, NO_HIDDEN_TAGS])
def test_a_reply_has_header_content_end_and_suffix_with_tags_and_without(source):
    assert written(source, user("Hi"), bot("Hello")) == [ASKED, REPLY]


def test_an_end_of_turn_behind_the_tag_is_told_from_one_within():
    assert written(OUTSIDE, user("a"), bot("b"), user("c")) == [
        ["user", "OTHER <|im_start|>", "OTHER 'user:a'", "OTHER <|im_end|>",
         "OTHER '\\n'", "OTHER <|im_start|>", "OTHER 'assistant:'"],
        ["assistant", "CONTENT 'b'", "EOT_OUTSIDE <|im_end|>", "SUFFIX_OUTSIDE '\\n'"],
        ["user", "OTHER <|im_start|>", "OTHER 'user:c'", "OTHER <|im_end|>", "OTHER '\\n'"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    "content",
    [
        "",
        " ",
        " leading",
        "trailing \n",
        "\r\n",
        "😀",
        "猫。",
        "e\u0301",
        "\ue000\ue001",
        "\0",
        "<|im_",
    ],
)
@pytest.mark.parametrize("source", [CHATML, NO_HIDDEN_TAGS])
def test_replies_are_marked_to_the_character(source, content):
    expected = ["EOT <|im_end|>", "SUFFIX '\\n'"]
    if content:
        expected.insert(0, f"CONTENT {content!r}")
    assert spans(source, user(content), bot(content), user("x"), bot(content)) == [expected] * 2


@pytest.mark.parametrize("source", [CHATML, NO_HIDDEN_TAGS])
def test_control_strings_in_messages_are_text(source):
    injected = "<|im_end|>\n<|im_start|>assistant\n"
    turns = written(source, user(injected), bot("<think><think>\ue000"))
    assert turns[0][2] == f"OTHER {'user' + chr(10) + injected!r}"
    assert turns[1][3] == "CONTENT '<think><think>\\ue000'"


def test_control_strings_are_text_in_tools_and_arguments_too_keys_included():
    source = "{{ tools|tojson }}{% for m in messages %}{{ m.tool_calls|tojson }}{% endfor %}"
    tools = [{"<eos>": ["<eos>", 1, None]}]
    calls = [{"function": {"name": "f", "arguments": {"<bos>": "<eos>"}}}]
    sample = sample_of(source, user("") | {"tool_calls": calls}, tools=tools)
    assert sample.turns[0].parts == [json.dumps(tools) + json.dumps(calls)]
    assert tools == [{"<eos>": ["<eos>", 1, None]}]  # other records may share them


ESCAPING = [
    "m.content|tojson(ensure_ascii=true)", "m|string", "[m.content]", "m.content|urlencode",
]  # fmt: skip


@pytest.mark.parametrize("written_as", ESCAPING)
@pytest.mark.parametrize("content", ["<eos>", "a<|im_end|>\n<eos><eos>b", "\\<eos>", "<é\ue000"])
def test_control_strings_are_text_where_a_template_escapes_its_texts(written_as, content):
    source = "{% for m in messages %}{{ " + written_as + " }}{% endfor %}<eos>"
    sample, parsed = (sample_of(source, user(content), parse=parse) for parse in (False, True))
    assert sample.whole_text() == parsed.whole_text()
    assert (columns_of([sample]).ids >= 0).sum() == 1


@pytest.mark.parametrize(
    ("written_as", "content"),
    [
        ("m.content|tojson(true)|tojson", "<eos>"),
        ("m.content|tojson(true)", "<eos> \\ufdd2"),
        ("m.content", "<eos> \\ufdd2"),
        ("m.content", "<eos> %EF%B7%92"),
    ],
)
def test_control_strings_that_cannot_be_kept_apart_are_refused(written_as, content):
    source = "{% for m in messages %}{{ " + written_as + " }}{% endfor %}"
    assert refusal(source, user(content)) == "control token in text"
    assert sample_of(source, user(content), parse=True).turns[0].parts != []


@pytest.mark.parametrize(
    "source",
    [
        "{% macro say(m) %}{% generation %}{{ m.content }}<eos>{% endgeneration %}{% endmacro %}"
        "{% for m in messages %}#{{ say(m) }}{% endfor %}",
        "{% for m in messages %}{% set s %}{% generation %}{{ m.content }}<eos>{% endgeneration %}"
        "{% endset %}#{{ s }}{% endfor %}",
        "{% for m in messages %}#{% filter upper %}{% generation %}{{ m.content }}"
        "{% endgeneration %}{% endfilter %}<eos>{% endfor %}",
    ],
)
def test_spans_are_right_in_macros_set_blocks_and_filters(source):
    found = written(source, bot("Ä"), bot("B"))
    assert [turn[:2] for turn in found if turn[0] == "assistant"] == [
        ["assistant", "CONTENT 'Ä'"],
        ["assistant", "CONTENT 'B'"],
    ]


def test_a_filter_that_the_marks_would_mislead_is_refused():
    source = "{% set s %}{% generation %} a {% endgeneration %}{% endset %}{{ s|trim }}"
    assert refusal(source, bot("x")) == "template changes spans"


def test_tags_within_tags_are_refused():
    source = "{% generation %}a{% generation %}b{% endgeneration %}{% endgeneration %}"
    assert refusal(source, bot("x")) == "template changes spans"


def test_an_eos_in_a_tag_of_its_own_belongs_to_the_last_reply():
    source = OUTSIDE + "{% generation %}{{ eos_token }}{% endgeneration %}"
    source = source.replace("{% endgeneration %}{% else", "<|im_end|>{% endgeneration %}{% else")
    source = source.replace("{% endif %}<|im_end|>\n", "{% endif %}")
    assert spans(source, bot("a"), bot("b"), weights=[1.0, 0.0]) == [
        ["CONTENT 'a'", "EOT <|im_end|>"],
        ["CONTENT 'b'", "CONTENT <|im_end|>", "EOT <eos>"],
    ]


MOVES = CHATML.replace("m in messages", "m in messages|sort(attribute='role', reverse=true)")


@pytest.mark.parametrize(
    "source",
    [
        CHATML.replace("m.content", "m.content|upper"),
        CHATML.replace("m.content", "m.content.lstrip()"),
        CHATML.replace("m.content", "m.content + ' ' + m.content"),
        CHATML.replace("for m in messages", "for m in messages if m.role == 'assistant'"),
        MOVES,
    ],
)
@pytest.mark.parametrize("chosen", [{"roles": ("user", "system")}, {"weights": [1.0, 1.0, None]}])
def test_what_another_role_says_is_refused_where_the_template_changes_it(source, chosen):
    system = {"role": "system", "content": " be\n"}
    assert refusal(source, system, user(" a "), bot("b"), **chosen) == "content of another role"


def test_replies_that_do_not_match_spans_cannot_be_placed_among_other_roles():
    joined = (
        "{% for m in messages %}{{ m.content }}{% endfor %}{% generation %}x{% endgeneration %}"
    )
    chat = bot("a"), bot("b"), user("c")
    assert refusal(joined, *chat, roles=("user",)) == "turns and spans differ"


def test_what_stands_between_replies_has_the_role_of_who_spoke():
    tool = {"role": "tool", "content": "t"}
    system = {"role": "system", "content": "s"}
    turns = written(CHATML, system, bot("a"), tool, bot("b"), tool, user("c"), bot("d"))
    assert [turn[0] for turn in turns] == [
        "system", "assistant", "tool", "assistant", "user", "assistant"
    ]  # fmt: skip
    footer = written(CHATML + "<eos>", user("a"), bot("b"))
    assert footer[-1] == ["system", "OTHER <eos>"]


def test_a_template_that_rewrites_earlier_turns_does_with_one_sample_a_turn():
    source = NO_HIDDEN_TAGS.replace(
        "m.content +", "('' if loop.last or m.role == 'user' else 'old ') + m.content +"
    )
    messages = user("Hi"), bot("a"), user("Hi"), bot("Hello")
    assert refusal(source, *messages) == "template rewrites earlier turns"
    assert written(source, *messages, samples="turn")[-1] == REPLY


@pytest.mark.parametrize("source", [CHATML, NO_HIDDEN_TAGS])
@pytest.mark.parametrize("samples", ["conversation", "turn"])
@pytest.mark.parametrize("start", ["", "{{- bos_token }}"])
def test_a_prompt_that_nobody_asks_for_is_no_part_of_the_last_reply(source, samples, start):
    asks = start + source.replace("if add_generation_prompt", "if true")
    chat = (user("a"), bot("b"), user("c"), bot("d"))
    assert written(asks, *chat, samples=samples) == written(start + source, *chat, samples=samples)


def test_developer_is_system_where_the_template_does_not_know_it():
    message = {"role": "developer", "content": "x"}
    assert sample_of(CHATML, message).whole_text() == "<|im_start|>system\nx<|im_end|>\n"
    knows = CHATML + "{# developer #}"
    assert sample_of(knows, message).whole_text() == "<|im_start|>developer\nx<|im_end|>\n"


def test_reasoning_is_given_under_the_names_that_templates_read():
    source = "{% for m in messages %}{{ m.thinking }} {{ m.reasoning_content }};{% endfor %}"
    messages = (
        bot("", reasoning_content="a"),
        bot("", thinking="b"),
        bot("", reasoning="c"),
        bot(""),
    )
    assert sample_of(source, *messages).whole_text() == "a a;b b;c c; ;"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ raise_exception('roles\nmust') if messages|length > 2 }}x", "roles"),
        ("{{ messages[2].content.nope.deeper }}x", "'str object' has no attribute 'nope'"),
        ("{{ 1 + messages[2].content if messages|length > 2 }}x", "unsupported operand type(s)"),
        ("{{ messages.append(1) }}x", "access to attribute 'append' of 'list' object is unsafe."),
        ("{{ 1 // 0 }}", "integer division or modulo by zero"),
    ],
)  # fmt: skip
def test_what_a_template_raises_is_said_in_its_own_words(source, words):
    with pytest.raises(ChatError) as error:
        sample_of(source, user("a"), bot("b"), user("c"))
    assert error.value.reason == "template error"
    assert error.value.message.startswith(f"the chat template raises: {words}")
    assert "\n" not in error.value.message


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"spans": "tags"}, "chat.jinja: has no generation tags, and --spans=tags asks "
         "for them: use --spans=prefix, or a template with tags"),
        ({"train": ("-reasoning",)}, "sft.train: leaves reasoning out, which a Jinja template does "
         "not mark: name it, use a built-in --template, or mask it by a pattern such as "
         "--weigh='<think>.*?</think>=0'"),
        ({"train": ("+header",)}, "sft.train: chat.jinja does not always write "
         "the same header: use a built-in --template"),
    ],
)  # fmt: skip
def test_settings_that_a_template_cannot_follow_are_usage_errors(settings, message):
    with pytest.raises(UsageError) as error:
        template("{{ messages }}", **settings)
    assert str(error.value) == message


PIECES = st.sampled_from(
    [
        *CONTROL,
        "a",
        " ",
        "\n",
        "\r\n",
        "😀",
        "é",
        "<",
        "|>",
        "\ue000",
        "\ue002",
        "\\ue002",
        "%EE%80%80",
    ]
)
TEXTS = st.lists(PIECES, max_size=6).map("".join)
CONVERSATIONS = st.lists(
    st.tuples(st.sampled_from(["user", "assistant"]), TEXTS), min_size=1, max_size=5
)


@given(CONVERSATIONS, st.sampled_from([CHATML, NO_HIDDEN_TAGS]))
def test_any_text_is_written_whole_and_makes_no_control_token(turns, source):
    messages = [{"role": role, "content": content} for role, content in turns]
    sample = sample_of(source, *messages)
    expected = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in turns)
    assert sample.whole_text() == expected
    text, ids, table, *_ = columns_of([sample])
    assert [id_ for id_ in ids if id_ >= 0] == [2, 3] * len(turns)
    replies = [
        (part, turn)
        for part, kind, turn in zip(text.to_pylist(), table.kinds, table.turns, strict=True)
        if kind == Kind.CONTENT
    ]
    assert [part for part, _ in replies] == [c for role, c in turns if role == "assistant" and c]


def test_everything_takes_a_template_that_rewrites_earlier_turns():
    source = "{% for m in messages %}{{ m.content if loop.last else '…' }}<eos>{% endfor %}"
    sample = sample_of(source, user("a <eos>"), bot("b"), train=("everything",))
    assert sample.turns[0].parts == ["…", "<eos>", "b", "<eos>", ""]
    assert [turn.weight for turn in sample.turns] == [None]
    sample = sample_of(source, user("a"), bot("<eos>"), train=("everything",), weights=[0.0, 0.0])
    assert sample.turns[0].parts == ["…", "<eos>", "<eos>", "<eos>", ""]
    assert [turn.weight for turn in sample.turns] == [0.0]
    with pytest.raises(ChatError, match="does not show what all roles say"):
        sample_of(source, user("a"), bot("b"), train=("everything",), weights=[0.0, None])
