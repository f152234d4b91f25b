"""`--history-reasoning drop`: earlier replies without their reasoning, and what stays trained."""

from __future__ import annotations

import json

import pytest

from tests.chat.jinja.test_training_templates import QWEN3
from tests.chat.test_inline_tags import BARE, DROPS
from tests.chat.test_part_weights import bot as in_parts
from tests.chat.test_part_weights import part
from tokmill.chat.mask_rule import mask_rule
from tokmill.chat.noticed import LOST_REASONING
from tokmill.chat.weights import DROPPED
from tokmill.errors import UsageError
from tokmill.settings.sft import SftSettings

USER = {"role": "user", "content": "a"}
RESULT = {"role": "tool", "content": "t"}
ASKED = "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
ANSWERED = (
    "<|im_start|>user\n<tool_response>\nt\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
)
TAGGED = """{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' }}
{%- if m.role == 'assistant' %}{%- generation %}
{{- '<think>\n' + m.reasoning_content + '\n</think>\n\n' if m.reasoning_content and loop.last }}
{{- m.content + '<|im_end|>' }}{%- endgeneration %}{{- '\n' }}
{%- else %}{{- m.content + '<|im_end|>\n' }}{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""
"""Hides reasoning, and has tags: these alone would train replies that no model writes."""


def bot(content, reasoning=None, **more):
    said = {"role": "assistant", "content": content, **more}
    return said if reasoning is None else {**said, "reasoning_content": reasoning}


@pytest.fixture
def render(make_renderer, whole_records):
    """Render one conversation without the reasoning of its history."""

    def run(template, *messages, **settings):
        renderer = make_renderer(template, **{"history_reasoning": "drop", **settings})
        return renderer.render(whole_records([json.dumps({"messages": messages})]))

    return run


def noticed(batch):
    counts = {name: int(sum(counts)) for name, counts in batch.counters.items()}
    return {name: counts[name] for name in (DROPPED, LOST_REASONING) if counts.get(name)}


@pytest.mark.parametrize("template", ["chatml", "qwen3-training", QWEN3, TAGGED])
def test_earlier_replies_lose_their_reasoning_and_are_context(render, shown, template):
    # The record asks for the first reply.
    batch = render(template, USER, bot("b", "r", weight=1), USER, bot("c", "s"))
    assert shown(batch) == [f"{ASKED}b<|im_end|>\n{ASKED}«<think>\ns\n</think>\n\nc<|im_end|>»\n"]
    assert noticed(batch) == {DROPPED: 1}


@pytest.mark.parametrize("template", ["chatml", "qwen3-training", QWEN3])
def test_one_sample_per_turn_trains_each_reply_with_its_reasoning(render, shown, template):
    batch = render(template, USER, bot("b", "r"), USER, bot("c", "s"), samples="turn")
    assert shown(batch) == [
        f"{ASKED}«<think>\nr\n</think>\n\nb<|im_end|>»\n",
        f"{ASKED}b<|im_end|>\n{ASKED}«<think>\ns\n</think>\n\nc<|im_end|>»\n",
    ]
    assert noticed(batch) == {}


@pytest.mark.parametrize("template", ["chatml", "qwen3-training", QWEN3])
def test_replies_around_tool_results_keep_their_reasoning(render, shown, template):
    messages = (USER, bot("b", "r"), RESULT, bot("c", "s"))
    (sample,) = shown(render(template, *messages))
    assert [sample] == shown(render(template, *messages, history_reasoning="keep"))
    assert sample.count("«<think>") == 2
    batch = render(template, *messages, USER, bot("d", "t"))
    assert shown(batch)[0].count("<think>") == 1
    assert noticed(batch) == {DROPPED: 2}


def test_replies_behind_the_last_user_are_trained_if_written_as_asked(render, shown):
    def trained(template, *messages):
        return [
            part.partition("<")[0] for part in shown(render(template, *messages))[0].split("«")
        ][1:]

    assert trained("chatml", USER, bot("b"), USER, bot("c")) == ["c"]
    assert trained("chatml", USER, bot("b", "r"), RESULT, bot("c"), USER, bot("d")) == ["d"]
    assert trained("chatml", USER, bot("d"), USER, bot("b"), RESULT, bot("c")) == ["b", "c"]
    # Qwen3 writes an empty block in the last reply alone.
    empty = "<think>\n\n</think>\n\n"
    (sample,) = shown(render("qwen3-training", USER, bot("b"), RESULT, bot("c")))
    assert sample == f"{ASKED}b<|im_end|>\n{ANSWERED}«{empty}c<|im_end|>»\n"


@pytest.mark.parametrize(
    ("template", "history"), [(BARE, "\n\nb"), (DROPS, "\n\nb")], ids=["keeps", "drops"]
)
def test_a_block_in_the_text_of_a_reply_is_its_reasoning(render, shown, template, history):
    thought = "<think>\n{}\n</think>\n\n{}"
    earlier, last = (bot(thought.format(*said)) for said in ("rb", "sc"))
    batch = render(template, USER, earlier, USER, last)
    (sample,) = shown(batch)
    assert "r\n" not in sample.replace("user\n", "")
    assert f"{history}<" in sample
    assert sample.count("«") == 1
    assert "c<" in sample.partition("«")[2]
    assert noticed(batch) == {DROPPED: 1}


@pytest.mark.parametrize("template", ["chatml", "qwen3-training", QWEN3])
def test_parts_with_weights_may_stand_in_reasoning_that_is_left_out(render, shown, template):
    reasoning = [part("r", train=False), part("s")]
    batch = render(
        template,
        USER, in_parts(part("b"), reasoning_content=reasoning),
        USER, in_parts(part("c", train=False), part("d")),
    )  # fmt: skip
    (sample,) = shown(batch)
    assert sample.startswith(f"{ASKED}b<|im_end|>\n{ASKED}")
    assert sample.endswith("c«d<|im_end|>»\n")


def test_all_tokens_and_no_reasoning_in_history_contradict_each_other():
    with pytest.raises(UsageError, match="contradicts --train=everything"):
        mask_rule(SftSettings(train=("everything",), history_reasoning="drop"))


def test_reasoning_that_a_template_never_writes_is_lost_not_left_out(render):
    batch = render("qwen2.5-training", USER, bot("b", "r"), RESULT, bot("c"))
    assert noticed(batch) == {LOST_REASONING: 1}
