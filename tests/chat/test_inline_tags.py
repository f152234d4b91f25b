"""Tags of reasoning and calls inside replies: fields, tokens or text."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.chat.control_strings import KEPT_TAGS, THOUGHT_TAGS
from tokmill.chat.inline_tags import (
    LOST_REASONING,
    READ_CALLS,
    READ_REASONING,
)
from tokmill.chat.limits import Unlimited
from tokmill.chat.noticed import LOST_BLOCKS
from tokmill.chat.own_templates import own_source
from tokmill.chat.render_pool import ChatRenderer, Writers
from tokmill.chat.tagged_blocks import read_call, split_reasoning, trailing_blocks
from tokmill.dataset.counts import USUAL
from tokmill.settings.sft import SftSettings

FIELD = """{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' }}
{%- if m.reasoning_content is string and loop.last %}
{{- '<think>\n' + m.reasoning_content.strip('\n') + '\n</think>\n\n' }}
{%- endif %}{{- m.content }}
{%- for call in m.tool_calls or [] %}
{{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson + '}\n</tool_call>' }}
{%- endfor %}{{- '<|im_end|>\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""
"""As Qwen3's template: the reasoning of the last reply, and calls in JSON."""

DROPS = """{%- for m in messages %}{%- set content = m.content %}
{%- if '</think>' in content %}{%- set content = content.split('</think>')[-1] %}{%- endif %}
{{- ('<|assistant_start|>' if m.role == 'assistant' else '<|user_start|>') + content }}
{{- '<eos>' if m.role == 'assistant' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant_start|><think>\n' }}{%- endif %}"""
"""As DeepSeek-R1's template: the prompt opens a block, and those in replies are cut out."""


BARE = """{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' }}
{%- endfor %}"""


QUESTION = {"role": "user", "content": "Q"}
CALL = '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'
CALLS = [{"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]


def bot(content, **more):
    return {"role": "assistant", "content": content, **more}


@pytest.fixture
def rendered(vocabulary, whole_records, shown):
    """Samples of one conversation with control tokens in ‹›, and what was noticed."""

    def run(source, *messages, **settings):
        chosen = SftSettings(schema="messages", **settings)
        text = source if "{" in source else own_source(source)
        write = partial(Writers(text, Unlimited()).write, replace(vocabulary, named={}), chosen)
        renderer = ChatRenderer(chosen, "t", write)
        batch = renderer.render(whole_records([json.dumps({"messages": messages})]))
        control = [
            f"‹{text}›" if id_ >= 0 else text
            for text, id_ in zip(batch.text.to_pylist(), batch.control.tolist(), strict=True)
        ]
        odd = [name for name in batch.counters if name not in USUAL]
        noticed = {name: int(batch.counters[name].sum()) for name in odd}
        noticed = {name: n for name, n in noticed.items() if n}
        refused = [reject.reason for _, reject in batch.refused]
        return "".join(control), refused or noticed, shown(batch)

    return run


@pytest.mark.parametrize("source", [FIELD, "chatml", "minimind"])
@pytest.mark.parametrize("content", ["<think>\nR\n</think>\n\nA", " <think>R</think>A"])
def test_a_leading_block_is_what_its_reasoning_field_would_be(rendered, source, content):
    text, noticed, marked = rendered(source, QUESTION, bot(content))
    assert noticed == {READ_REASONING: 1}
    assert "‹<think>›\nR\n‹</think>›\n\nA" in text
    assert (text, {}, marked) == rendered(source, QUESTION, bot("A", reasoning_content="R"))


@pytest.mark.parametrize("source", [FIELD, "chatml", "minimind", DROPS])
@pytest.mark.parametrize("end", ["</think>\n\nA", "</think>A </think> <think>"])
def test_a_reply_that_lacks_the_opening_tag_is_read_as_one_that_has_it(rendered, source, end):
    whole = rendered(source, QUESTION, bot(f"<think>\nR\n{end}"))
    assert rendered(source, QUESTION, bot(f"R\n{end}")) == whole
    assert whole[1][READ_REASONING] == 1
    assert "‹<think>›\nR\n‹</think>›" in whole[0]


@pytest.mark.parametrize("preset", ["tokmill", "trl", "llamafactory"])
@pytest.mark.parametrize("source", [BARE, "plain"])
def test_a_template_without_reasoning_gets_no_opening_tag(rendered, source, preset):
    assert "<think>" not in rendered(source, QUESTION, bot("R</think>A"), preset=preset)[0]


def test_a_closing_tag_alone_opens_a_block_only_in_replies_and_not_in_brackets(rendered):
    asked = {"role": "user", "content": "R</think>A"}
    assert "‹<think>›" not in rendered(FIELD, asked, bot("A"))[0]
    bracketed = rendered("plain", QUESTION, bot("R[/THINK]A"), inline_tags="fields")
    assert "R[/THINK]A" in bracketed[0]


@pytest.mark.parametrize("source", [FIELD, "chatml", "minimind"])
def test_an_empty_block_stays_one(rendered, source):
    text, _, _ = rendered(source, QUESTION, bot("<think>\n\n</think>\n\nA"))
    assert "‹<think>›\n\n‹</think>›\n\nA" in text


@pytest.mark.parametrize("source", [FIELD, "chatml"])
def test_blocks_of_calls_at_the_end_are_calls(rendered, source):
    text, noticed, marked = rendered(source, QUESTION, bot(CALL))
    assert noticed == {READ_CALLS: 1}
    assert '‹<tool_call>›\n{"name": "f", "arguments": {"x": 1}}\n‹</tool_call>›' in text
    assert (text, {}, marked) == rendered(source, QUESTION, bot("", tool_calls=CALLS))


@pytest.mark.parametrize(
    ("messages", "n"),
    [
        ([{"role": "user", "content": "<think>Q</think>"}, bot("A")], 2),
        ([{"role": "system", "content": f"say {CALL}"}, QUESTION, bot("A")], 2),
        ([QUESTION, bot("A <think>R</think>")], 2),
        ([QUESTION, bot("<think>R")], 1),
        ([QUESTION, bot(f"{CALL} is how")], 2),
        ([QUESTION, bot("<tool_call>{}</tool_call>")], 2),
        ([QUESTION, bot("<think>R</think>A", reasoning_content="S")], 2),
    ],
)
def test_tags_anywhere_else_are_text_and_counted(rendered, messages, n):
    text, noticed, _ = rendered(FIELD, *messages)
    assert noticed == {KEPT_TAGS: n}
    assert "‹<tool" not in text
    assert "‹<think>›R" not in text


@pytest.mark.parametrize(
    "settings", [{"inline_tags": "text"}, {"preset": "torchtune", "boundary": "split"}]
)
def test_text_is_text_where_that_is_asked_for_or_the_framework_reads_no_tags(rendered, settings):
    text, noticed, _ = rendered(FIELD, QUESTION, bot("<think>R</think>A"), **settings)
    assert text.endswith("assistant\n<think>R</think>A‹<|im_end|>›\n")
    assert noticed == {KEPT_TAGS: 2}


def test_the_block_behind_a_prompt_that_opens_it_is_trained(rendered):
    text, noticed, (marked,) = rendered(DROPS, QUESTION, bot("<think>\nR\n</think>\n\nA"))
    assert text == "‹<|user_start|>›Q‹<|assistant_start|>›‹<think>›\nR\n‹</think>›\n\nA‹<eos>›"
    assert marked.endswith("<think>\n«R\n</think>\n\nA<eos>»")
    assert noticed == {READ_REASONING: 1}
    assert rendered(DROPS, QUESTION, bot("<think>R\n</think>\n\nA")) == (text, noticed, [marked])


OPENS = """{%- for m in messages %}{%- set is_last = loop.last %}
{{- ('<|assistant_start|>' if m.role == 'assistant' else '<|user_start|>') }}
{%- if m.role == 'assistant' and is_last %}{{- '<think>\n' + m.content + '<eos>' }}
{%- else %}{{- m.content.split('</think>')[-1] }}{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant_start|><think>\n' }}{%- endif %}"""
"""As Nemotron Nano's template: it opens the block of the last reply itself."""


@pytest.mark.parametrize(
    "reply",
    ["R\n</think>\n\nA", "<think>R\n</think>\n\nA", "<think>\nR\n</think>\n\nA",
     "\n<think>\nR\n</think>\n\nA"],
)  # fmt: skip
@pytest.mark.parametrize(
    "source", [OPENS, OPENS.replace("<think>\\n", "<think>"), OPENS.split("{%- if add")[0]]
)
@pytest.mark.parametrize("asked", [QUESTION, {"role": "user", "content": "Q <think>"}])
def test_a_block_that_the_template_opens_itself_has_one_opening_tag(rendered, source, reply, asked):
    text, noticed, _ = rendered(source, asked, bot(reply))
    assert text.count("‹<think>›") == 1
    assert "".join(text.partition("‹<think>›")[2].split()) == "R‹</think>›A‹<eos>›"
    assert noticed[READ_REASONING] == 1


def test_earlier_blocks_are_cut_out_as_when_the_model_replies(rendered):
    replies = [bot(f"<think>\nR{i}\n</think>\n\nA{i}") for i in (1, 2)]
    messages = [QUESTION, replies[0], QUESTION, replies[1]]
    _, refused, _ = rendered(DROPS, *messages)
    assert len(refused) == 1
    _, noticed, marked = rendered(DROPS, *messages, samples="turn")
    assert noticed == {READ_REASONING: 2}
    first = "<|user_start|>Q<|assistant_start|>"
    assert marked[0] == f"{first}<think>\n«R1\n</think>\n\nA1<eos>»"
    assert marked[1] == f"{first}\n\nA1<eos>{first}<think>\n«R2\n</think>\n\nA2<eos>»"


def test_preset_trl_loses_what_its_template_cuts_out_and_says_so(rendered):
    source = DROPS.replace("<think>\n' }}", "' }}")
    text, noticed, _ = rendered(source, QUESTION, bot("<think>R</think>A"), preset="trl")
    assert text == "‹<|user_start|>›Q‹<|assistant_start|>›A‹<eos>›"
    assert noticed == {LOST_REASONING: 1}


@pytest.mark.parametrize("source", [BARE, "llama3", "plain", "alpaca", "chatml"])
def test_tags_that_a_tokenizer_alone_has_are_tokens_and_the_text_stays(rendered, source):
    reply = bot(f"<think>R <eos></think> A\n{CALL}")
    text, noticed, (marked,) = rendered(source, QUESTION, reply, preset="llamafactory")
    written = text.replace("‹<eos>›", "<eos>").replace("R <eos>", "R «eos»")
    assert "‹<think>›R «eos»‹</think>› A\n‹<tool_call>›" in written
    assert noticed[READ_REASONING] == noticed[READ_CALLS] == 1
    assert "<think>R <eos></think> A\n" in marked.partition("«")[2]


def test_reasoning_in_tags_of_the_tokenizer_can_be_masked(rendered):
    reply = bot("<think>R</think>A")
    _, _, (marked,) = rendered("plain", QUESTION, reply, train=("-reasoning",))
    assert marked == "Q<think>R</think>«A<eos>»"


def test_a_template_that_leaves_reasoning_out_is_counted(rendered):
    _, noticed, _ = rendered(BARE, QUESTION, bot("A", reasoning_content="R"))
    assert noticed == {LOST_REASONING: 1}


def test_private_use_characters_in_a_text_stay_what_they_are(rendered):
    used = "\ue000\uf8ff"
    text, _, _ = rendered("plain", QUESTION, bot(f"<think>{used}</think>{used}"))
    assert text == f"Q‹<think>›{used}‹</think>›{used}‹<eos>›"
    _, refused, _ = rendered("plain", QUESTION, bot("<think>\ufdd9</think>A"))
    assert refused == ["noncharacters"]
    assert rendered("plain", QUESTION, bot("\ufdd9"))[0] == "Q\ufdd9‹<eos>›"


ONE_CALL = '{"name": "f", "arguments": {"x": 1}}'


def test_tags_of_a_solution_behind_a_thought_go_if_they_hold_all_the_rest():
    thought = "<|begin_of_thought|>\n\na\n\n<|end_of_thought|>\n\n"
    solution = "<|begin_of_solution|>\n\nb\n\n<|end_of_solution|>"
    assert split_reasoning(thought + solution, THOUGHT_TAGS) == ("a", "b")
    assert split_reasoning(thought + "b", THOUGHT_TAGS) == ("a", "b")
    assert split_reasoning(f"{thought}{solution} c", THOUGHT_TAGS) == ("a", f"{solution} c")


@pytest.mark.parametrize(
    ("text", "rest", "n_calls"),
    [
        (f"<tool_call>\n{ONE_CALL}\n</tool_call>", "", 1),
        (f"I look.\n\n<tool_call>{ONE_CALL}</tool_call>\n", "I look.", 1),
        (f"a\n<tool_call>{ONE_CALL}</tool_call>\n<tool_call>{ONE_CALL}</tool_call>", "a", 2),
        (f"<tool_call>{ONE_CALL}</tool_call> and\n<tool_call>{ONE_CALL}</tool_call>",
         f"<tool_call>{ONE_CALL}</tool_call> and", 1),
    ],
)  # fmt: skip
def test_blocks_of_calls_that_end_a_reply_are_calls(text, rest, n_calls):
    blocks = trailing_blocks(text)
    assert text[: blocks[0][0][0]].rstrip("\n") == rest
    assert [text[start[1] : stop[0]].strip() for start, stop in blocks] == [ONE_CALL] * n_calls


@pytest.mark.parametrize(
    "call",
    [
        "{}",
        "[]",
        '"f"',
        '{"name": "f"}',
        '{"name": "f", "arguments": {}, "id": 1}',
        '{"name": "f", "parameters": {}}',
        '{"name": "", "arguments": {}}',
        '{"name": 1, "arguments": {}}',
        '{"name": "a\\"b", "arguments": {}}',
        '{"name": "f", "arguments": "{}"}',
        '{"name": "f", "arguments": {"x": 1, "x": 2}}',
        '{"name": "f", "arguments": {"x": NaN}}',
        '{"name": "f", "arguments": {"x": 1e999}}',
        '{"name": "f", "arguments": {"x": "\\ud800"}}',
        '{"name": "f", "arguments": ' + '{"x":' * 100_000 + "1" + "}" * 100_001,
    ],
)
def test_json_that_a_template_would_lose_some_of_is_no_call(call):
    assert read_call(call) is None
    assert trailing_blocks(f"<tool_call>{call}</tool_call>") == []


VALUES = st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text(), max_size=2)


@given(st.dictionaries(st.text(), VALUES, max_size=3))
def test_every_other_call_is_read_as_it_stands(arguments):
    call = {"name": "f", "arguments": arguments}
    assert read_call(json.dumps(call)) == call


def test_a_call_has_its_name_first_as_templates_write_it():
    assert list(read_call('{"arguments": {}, "name": "f"}') or ()) == ["name", "arguments"]


@pytest.mark.parametrize("tag", ["seed:think", "mm:think", "thought", "reasoning"])
def test_the_reasoning_tags_of_a_family_are_those_that_its_template_writes(rendered, tag):
    opens, closes = f"<{tag}>", f"</{tag}>"
    source = FIELD.replace("<think>", opens).replace("</think>", closes)
    text, noticed, _ = rendered(source, QUESTION, bot(f"{opens}\nR\n{closes}\n\nA"))
    assert noticed == {READ_REASONING: 1}
    assert text.endswith(f"{opens}\nR\n{closes}\n\nA‹<|im_end|>›\n")
    text, noticed, _ = rendered(
        source, QUESTION, bot("<think>\nR\n</think>\n\nA"), inline_tags="fields"
    )
    assert (noticed, opens in text, "<think>" in text) == ({READ_REASONING: 1}, True, False)


@pytest.mark.parametrize("tag", ["seed:think", "mm:think"])
def test_a_family_whose_template_reads_its_tags_itself_keeps_the_block(rendered, tag):
    source = DROPS.replace("</think>", f"</{tag}>").replace("<think>", f"<{tag}>")
    text, noticed, _ = rendered(source, QUESTION, bot(f"<{tag}>\nR\n</{tag}>\n\nA"))
    assert noticed == {READ_REASONING: 1}
    assert f"<{tag}>\nR\n</{tag}>\n\nA" in text


def test_where_fields_would_keep_a_block_that_is_cut_out_the_count_names_the_option(rendered):
    source = DROPS.replace("<think>\n' }}", "' }}").replace(
        "+ content }}", "+ ('<think>' + m.reasoning_content + '</think>' if "
        "m.reasoning_content else '') + content }}"
    )  # fmt: skip
    chat = (QUESTION, bot("<think>\nR\n</think>\n\nA"))
    text, noticed, _ = rendered(source, *chat, preset="trl")
    assert ("R" in text, noticed) == (False, {LOST_BLOCKS: 1})
    text, noticed, _ = rendered(source, *chat, preset="trl", inline_tags="fields")
    assert ("‹<think>›R‹</think>›A" in text, noticed) == (True, {READ_REASONING: 1})
