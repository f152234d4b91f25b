"""Text that a template inserts into trained replies is counted by what it is."""

from __future__ import annotations

import json

import pytest

from tokmill.chat.inserted import EMPTY_THINKING, OTHER_TEXT, PROMPTED, thinking_note
from tokmill.dataset.counts import REASONED_REPLIES

USER = {"role": "user", "content": "q"}
CALL = {"type": "function", "function": {"name": "f", "arguments": {}}}
EMPTY, THOUGHT = "<think>\n\n</think>\n\n", "<think>\nt\n</think>\n\n"


def said(text, **more):
    return {"role": "assistant", "content": text, **more}


def jinja(reply):
    return (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}"
        "{% generation %}" + reply + "<|im_end|>{% endgeneration %}{% else %}{{ m.content }}"
        "<|im_end|>{% endif %}\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
        "{% endif %}"
    )


@pytest.fixture
def counted(make_renderer, whole_records):
    """Count what the template inserts, by name."""
    names = (EMPTY_THINKING, OTHER_TEXT, PROMPTED, REASONED_REPLIES)

    def count(template, *messages, **settings):
        record = json.dumps({"messages": messages})
        batch = make_renderer(template, **settings).render(whole_records([record]))
        assert not batch.refused
        return {name: int(n.sum()) for name, n in batch.counters.items() if name in names}

    return count


@pytest.mark.parametrize(
    ("template", "messages", "expected"),
    [
        ("qwen3-training", [USER, said("a")], {EMPTY_THINKING: 1}),
        ("qwen3-training", [USER, said("a", reasoning_content="")], {EMPTY_THINKING: 1}),
        ("qwen3-training", [USER, said("", tool_calls=[CALL])], {EMPTY_THINKING: 1}),
        ("qwen3-training", [USER, said("a", name="x")], {EMPTY_THINKING: 1}),
        ("qwen3-training", [USER, said("a"), USER, said("b")], {EMPTY_THINKING: 2}),
        ("qwen3-training", [USER, said("a", train=False), USER, said("b")], {EMPTY_THINKING: 1}),
        ("qwen3-training", [USER, said(EMPTY + "a")], {}),
        ("qwen3-training", [USER, said(THOUGHT + "a")], {REASONED_REPLIES: 1}),
        ("qwen3-training", [USER, said("a", reasoning_content="t")], {REASONED_REPLIES: 1}),
        ("chatml", [USER, said("a")], {}),
        ("nanochat", [USER, said("a 1"), {"role": "tool", "content": "r"}, said("b 2")], {}),
        ("chatml", [USER, said("a", reasoning_content="t")], {REASONED_REPLIES: 1}),
        ("llama3", [USER, said("a")], {}),
        ("plain", [USER, said("a")], {}),
        (jinja("{{ m.content }}"), [USER, said(" a\n")], {}),
        (jinja("{{ m.content | trim }}"), [USER, said(" a\n")], {}),
        (jinja("Sure: {{ m.content }}"), [USER, said("a")], {OTHER_TEXT: 1}),
        (jinja("{{ m.content }} (end)"), [USER, said("a")], {OTHER_TEXT: 1}),
        (jinja("<think></think>{{ m.content }}"), [USER, said("a")], {EMPTY_THINKING: 1}),
        (jinja("<bos>final<eos>{{ m.content }}"), [USER, said("a")], {}),
    ],
)
def test_what_stands_in_no_record_is_counted(counted, template, messages, expected):
    assert counted(template, *messages) == expected


@pytest.mark.parametrize(
    "settings", [{"train": ("-empty-reasoning",)}, {"weigh": ("^<think>.*?</think>=0",)}]
)
def test_what_is_not_trained_is_not_counted(counted, settings):
    assert counted("qwen3-training", USER, said("a"), **settings) == {}


def test_the_last_turn_alone_is_counted_where_it_alone_is_trained(counted):
    chat = [USER, said("a"), USER, said("b")]
    for settings in ({"turns": "last"}, {"history_reasoning": "drop"}):
        assert counted("qwen3-training", *chat, **settings) == {EMPTY_THINKING: 1}
    assert counted("qwen3-training", *chat, samples="turn") == {EMPTY_THINKING: 2}


def test_a_prompt_inside_the_generation_tags_is_counted(counted):
    template = (
        "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}<|im_start|>"
        "assistant\n{{ m.content }}<|im_end|>{% endgeneration %}{% else %}<|im_start|>{{ m.role }}"
        "\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    assert counted(template, USER, said("a"))[PROMPTED] == 1
    assert counted(template, USER, said("a"), train=("-prompt",)) == {}


def test_empty_blocks_beside_reasoning_are_a_warning_that_names_the_option():
    counters = {EMPTY_THINKING: 3_076, REASONED_REPLIES: 80, "trained turns": 3_156}
    note = thinking_note(counters)
    assert "3,076 of 3,156 trained replies" in note
    assert "80 with reasoning" in note
    assert "--train=-empty-reasoning" in note
    assert thinking_note({EMPTY_THINKING: 3_076}) == ""
    assert thinking_note({REASONED_REPLIES: 80}) == ""
