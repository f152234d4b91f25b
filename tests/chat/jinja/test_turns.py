from __future__ import annotations

import functools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.chat.conversation import ChatError, Conversation
from tokmill.chat.jinja import template as module
from tokmill.chat.jinja.environment import CompiledTemplate
from tokmill.chat.jinja.spans import spans_by_prefix
from tokmill.chat.jinja.template import JinjaTemplate
from tokmill.chat.jinja.trace import Trace
from tokmill.chat.jinja.turns import check_sample
from tokmill.chat.segments import Kind, Placeholder, Segments
from tokmill.errors import TokmillError
from tokmill.settings.sft import SftSettings

CONTROL = {"<bos>": 0, "<eos>": 1, "<|im_start|>": 2, "<|im_end|>": 3, "<think>": 4, "</think>": 5}

TURNS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}<|im_end|>\n{% endfor %}"
PROMPT = "{% if add_generation_prompt %}<assistant>{% endif %}"
LOOKS_AHEAD = (
    "{% if tools %}{{ tools | tojson }}\n{% endif %}"
    "{% for m in messages %}"
    "{% if m.role == 'tool' %}"
    "{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}<user>{% endif %}"
    "({{ m.content }})"
    "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>\n{% endif %}"
    "{% else %}<{{ m.role }}>{{ m.content }}{{ m.tool_calls | tojson if m.tool_calls else '' }}"
    "<|im_end|>\n{% endif %}{% endfor %}" + PROMPT
)
NEXT_ITEM = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% if loop.nextitem is defined and loop.nextitem.role == m.role %}+{% else %}<|im_end|>"
    "{% endif %}{% endfor %}" + PROMPT
)
LAST_HAS_NO_END = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% if (loop.last and add_generation_prompt) or not loop.last %}<|im_end|>\n{% endif %}"
    "{% endfor %}{% if add_generation_prompt and messages[-1].role != 'assistant' %}<assistant>"
    "{% endif %}"
)
ENDS_WITH_EOS = TURNS + "{% if add_generation_prompt %}<assistant>{% else %}<eos>{% endif %}"
WITHOUT_FIRST = (
    "{% if messages and messages[0].role == 'system' %}{% set rest = messages[1:] %}"
    "{% set about = messages[0].content | trim %}"
    "{% else %}{% set rest = messages %}{% set about = '' %}{% endif %}"
    "{% for m in rest %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "<{{ m.role }}>{{ about if loop.first }}{{ m.content | trim }}<|im_end|>{% endfor %}" + PROMPT
)
IN_ONE_LINE = (
    "{% set rest = messages[1:] if messages[0].role == 'system' else messages %}"
    "{{ bos_token }}{% for m in rest %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{{ 'assistant: ' if add_generation_prompt }}"
)
SCANS = (
    "{% set ns = namespace(searches=true, last=messages|length - 1) %}"
    "{% for m in messages[::-1] %}{% set i = (messages|length - 1) - loop.index0 %}"
    "{% if ns.searches and m.role == 'user' and not m.content.startswith('(') %}"
    "{% set ns.searches = false %}{% set ns.last = i %}{% endif %}{% endfor %}"
)
DROPS_REASONING = SCANS + (
    "{% for m in messages %}<{{ m.role }}>"
    "{% if loop.index0 > ns.last %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{{ m.content }}<|im_end|>{% endfor %}" + PROMPT
)
COUNTS = (
    "{% set ns = namespace(n=0) %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% if m.role == 'tool' %}{% set ns.n = ns.n + 1 %}#{{ ns.n }}{% endif %}<|im_end|>{% endfor %}"
)
COUNTS_AND_LOOKS = COUNTS.replace(
    "<|im_end|>", "{% if not (loop.last and ns.n) %}<|im_end|>{% endif %}"
)
COUNTS_AND_ENDS = COUNTS + "{% if add_generation_prompt and not ns.n %}<assistant>{% endif %}"
MACRO = (
    "{% macro shown(text) %}[{{ text | trim }}]{% endmacro %}"
    "{% for m in messages %}<{{ m.role }}>{{ shown(m.content) }}{% endfor %}"
    "{{ shown('assistant') if add_generation_prompt }}"
)
DEFAULT = (
    "{% if not add_generation_prompt is defined %}"
    "{% set add_generation_prompt = false %}{% endif %}"
)

FAST = {
    "plain": TURNS + PROMPT, "looks ahead": LOOKS_AHEAD, "next item": NEXT_ITEM,
    "last has no end": LAST_HAS_NO_END, "ends with eos": ENDS_WITH_EOS,
    "without first": WITHOUT_FIRST, "in one line": IN_ONE_LINE, "scans": SCANS + TURNS + PROMPT,
    "counts": COUNTS, "counts and looks": COUNTS_AND_LOOKS, "counts and ends": COUNTS_AND_ENDS,
    "macro": MACRO, "default": DEFAULT + TURNS + PROMPT,
}  # fmt: skip
"""Templates of the form that `jinja.turn_loop` finds."""

OTHERS = {
    "drops reasoning": DROPS_REASONING,
    "length": "{% for m in messages %}{{ loop.length }}{{ m.content }}{% endfor %}",
    "from the end": "{% for m in messages %}{{ loop.revindex }}{{ m.content }}{% endfor %}",
    "last message": "{% for m in messages %}{{ messages[-1].role }}{{ m.content }}{% endfor %}"
    .replace("messages[-1]", "(messages | last)"),
    "count": "{{ messages | length }}" + TURNS,
    "two loops": TURNS + TURNS,
    "filtered loop": TURNS.replace("in messages", "in messages if m.content"),
    "two at a time": "{% for m in messages | batch(2) %}{{ m[0].content }}{% endfor %}",
    "printed": TURNS + "{{ messages }}",
    "kept loop": "{% for m in messages %}{% set l = loop %}{{ l.last }}{{ m.content }}{% endfor %}",
    "prompt first": "{% if add_generation_prompt %}>{% endif %}" + TURNS,
    "stops": TURNS.replace("{% endfor", "{% if not m.content %}{% break %}{% endif %}{% endfor"),
    "cycle": "{% set c = cycler('a', 'b') %}{% for m in messages %}{{ c.next() }}{% endfor %}",
    "used up": "{% set t = [1, 2] | map('string') %}{% for m in messages %}"
    "{% for x in t %}{{ x }}{% endfor %}{{ m.content }}{% endfor %}",
    "other list": "{% set messages = messages[2:] %}" + TURNS,
    "list of a turn": TURNS.replace("<{{", "{% set messages = messages[1:] %}{{"),
    "inside": "{% if messages %}" + TURNS + "{% endif %}",
    "set block": "{% set text %}" + TURNS + "{% endset %}{{ text }}",
}  # fmt: skip
"""Templates of other forms, rendered prefix by prefix."""

TEXTS = st.sampled_from((
    "", "a", "hi there", " b", "c\n", "stop", "assistant", "<|im_end|>", "<think>x</think>y", "(r)",
))  # fmt: skip


@st.composite
def conversations(draw):
    messages = []
    if draw(st.booleans()):
        messages.append({"role": "system", "content": draw(TEXTS)})
    for i in range(draw(st.integers(1, 7))):
        usual = "user" if i % 2 == 0 else "assistant"
        others = ("user", "assistant", "tool", "system", "assistant")
        role = usual if draw(st.booleans()) else draw(st.sampled_from(others))
        messages.append({"role": role, "content": draw(TEXTS)})
        if role == "assistant" and draw(st.booleans()):
            call = {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
            messages[-1] |= {"reasoning_content": draw(TEXTS), "tool_calls": [call]}
    tools = draw(st.sampled_from((None, [{"name": "f"}])))
    return Conversation(messages, [None] * len(messages), tools)


@functools.cache
def template(source, samples="conversation"):
    return JinjaTemplate(
        source, control=CONTROL, variables={"bos_token": "<bos>", "eos_token": "<eos>"},
        settings=SftSettings(samples=samples), where="chat.jinja",
    )  # fmt: skip


@functools.cache
def by_prefix(source, samples="conversation"):
    return JinjaTemplate(
        source, control=CONTROL, variables={"bos_token": "<bos>", "eos_token": "<eos>"},
        settings=SftSettings(samples=samples, spans="prefix"), where="chat.jinja",
    )  # fmt: skip


def written(made, conversation):
    segments = Segments(CONTROL)
    segments.begin_sample()
    try:
        made.render(conversation, segments)
    except ChatError as error:
        return error.reason, error.message
    columns = segments.columns()
    table = [column.tolist() for column in (columns.ids, *columns.table[:3])]
    return columns.text.to_pylist(), table


@pytest.mark.parametrize("name", FAST)
@given(conversations(), st.sampled_from(("conversation", "turn")))
def test_a_chat_is_written_as_by_prefixes(name, conversation, samples):
    expected = written(by_prefix(FAST[name], samples), conversation)
    assert written(template(FAST[name], samples), conversation) == expected


@pytest.mark.parametrize("name", OTHERS)
def test_a_template_of_another_form_is_rendered_by_prefixes(name):
    assert template(OTHERS[name])._compiled.turns is None


def bot(content):
    return {"role": "assistant", "content": content}


def chat(n_messages, *others):
    pair = ({"role": "user", "content": "q"}, {"role": "assistant", "content": "a"})
    messages = [dict(pair[i % 2], content=f"text {i}") for i in range(n_messages)]
    return Conversation([*messages, *others], [None] * (n_messages + len(others)))


@pytest.fixture
def renderings(monkeypatch):
    """Count renderings, and the messages that they are given; no sample is checked."""
    monkeypatch.setattr(module, "check_sample", lambda *_: None)
    found = []
    plain, traced = CompiledTemplate.render, Trace.fill

    def render(self, variables, budget):
        found.append(len(variables["messages"]))
        return plain(self, variables, budget)

    def fill(self, made, given):
        found.append(len(given["messages"]))
        traced(self, made, given)

    monkeypatch.setattr(CompiledTemplate, "render", render)
    monkeypatch.setattr(Trace, "fill", fill)
    return found


@pytest.mark.parametrize(
    ("name", "n_renderings"),
    [("plain", 1), ("scans", 1), ("next item", 2), ("without first", 1), ("looks ahead", 1)],
)
def test_the_number_of_renderings_does_not_grow_with_the_turns(name, n_renderings, renderings):
    made = template(FAST[name])
    written(made, chat(4))  # the ending of the template is rendered with the first conversation
    for n_messages in (4, 40, 400):
        renderings.clear()
        parts, _ = written(made, chat(n_messages))
        assert renderings == [n_messages] * n_renderings
        assert sum(part == f"text {n_messages - 1}" for part in parts) == 1


@pytest.mark.parametrize("hides", [False, True])
def test_tags_hidden_from_a_template_are_written_as_by_prefixes(hides):
    placeholders = {
        "\uf8ff": Placeholder("<think>", Kind.REASONING, closes=False),
        "\uf8fe": Placeholder("</think>", Kind.REASONING, closes=True),
    }
    source = TURNS.replace("{{ m.content }}", "{{ m.content.split('</think>')[-1] }}") + PROMPT
    hidden = chat(2, {"role": "user", "content": "u"}, bot("\uf8ffhm\uf8feyes"))
    given = replace(hidden, placeholders=placeholders, hides_tags=hides)
    found = written(template(source), given)
    assert found == written(by_prefix(source), given)
    assert ("hm" in "".join(found[0])) is hides


def test_a_template_error_in_a_shorter_chat_is_told_as_by_prefixes():
    source = LAST_HAS_NO_END.replace(
        "{% for",
        "{% if messages[0].content == 'text 0' %}{{ raise_exception('no') }}{% endif %}{% for",
    )
    assert written(template(source), chat(4)) == written(by_prefix(source), chat(4))
    assert written(template(source), chat(4))[1] == "the chat template raises: no"


@pytest.mark.parametrize("source", [COUNTS_AND_LOOKS, COUNTS_AND_ENDS])
def test_what_a_turn_keeps_for_later_ones_is_not_lost(source):
    tool = {"role": "tool", "content": "r"}
    conversation = chat(2, tool, bot("b"), tool, bot("c"))
    found = written(template(source), conversation)
    assert found == written(by_prefix(source), conversation)
    assert "#2" in "".join(found[0])


def test_running_out_of_memory_ends_the_run_and_refuses_no_record(monkeypatch):
    def fill(*_):
        raise MemoryError

    monkeypatch.setattr(module.Trace, "fill", fill)
    with pytest.raises(MemoryError):
        written(template(TURNS + PROMPT), chat(2))


REPLIES = range(1, 400, 2)


def prefix(n_messages, *, prompt):
    parts = ["u:hi|" if i % 2 == 0 else "a:yo|" for i in range(n_messages)]
    return "".join(parts) + "a:" * prompt


SPANS = dict(
    zip(REPLIES, spans_by_prefix(prefix(400, prompt=False), prefix, REPLIES, 400), strict=True)
)


def checked_texts():
    """Give renderings of which the check takes a sample, all with the same spans."""
    texts = [prefix(399, prompt=False) + f"a:{i:04}" for i in range(640)]
    calls = []

    def render(n_messages, *, prompt):
        calls.append(n_messages)
        return prefix(n_messages, prompt=prompt)

    for text in texts:
        calls.clear()
        check_sample(text, render, dict(list(SPANS.items())[:-1]), 400)
        if calls:
            yield text, list(calls)


def test_a_sample_of_conversations_is_checked_with_few_prefixes():
    found = list(checked_texts())
    assert 2 <= len(found) <= 30
    assert {tuple(calls) for _, calls in found} == {(1, 2, 199, 200, 397, 398)}


@pytest.mark.parametrize("change", [(1, 0), (0, -1)])
def test_a_span_that_differs_from_its_prefix_ends_the_run(change):
    text = next(checked_texts())[0]
    wrong = {i: (start + change[0], stop + change[1]) for i, (start, stop) in SPANS.items()}
    with pytest.raises(TokmillError, match="--spans=prefix") as error:
        check_sample(text, prefix, wrong, 400)
    assert "message 2 is trained at" in str(error.value)


def test_a_span_that_prefixes_refuse_ends_the_run():
    text = next(checked_texts())[0]
    with pytest.raises(TokmillError, match="message 2: the template's generation prompt is not"):
        check_sample(text, lambda n, *, prompt: prefix(n, prompt=prompt) + "?" * prompt, SPANS, 400)


def test_no_span_is_checked_where_all_come_from_prefixes():
    check_sample(next(checked_texts())[0], prefix, {}, 400)
