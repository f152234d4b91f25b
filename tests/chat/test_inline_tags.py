from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pytest

from tokmill.chat.control_strings import KEPT_TAGS
from tokmill.chat.inline_tags import (
    LOST_REASONING,
    READ_CALLS,
    READ_REASONING,
    InlineForms,
    inline_forms,
)
from tokmill.chat.jinja.template import JinjaTemplate
from tokmill.chat.own_templates import own_source
from tokmill.chat.render_pool import ChatRenderer, Writers
from tokmill.chat.template_source import make_template
from tokmill.settings.sft import SftSettings

THINK = ("<think>", "</think>")

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

CLOSES = DROPS.replace("'<|assistant_start|>' if", "'<|assistant_start|></think>' if").replace(
    "'<|assistant_start|><think>\n'", "'<|assistant_start|></think>'"
)
"""As DeepSeek-V3.1's template without thinking: every reply has an empty block."""

BARE = """{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' }}
{%- endfor %}"""


@pytest.fixture
def forms(vocabulary):
    def find(source, control=None, *, parse=False, **settings) -> InlineForms:
        chosen = SftSettings(**settings)
        known = replace(vocabulary, parse=parse)
        if control is not None:
            kept = {string: id_ for string, id_ in known.control.items() if string in control}
            known = replace(known, control=kept)
        if "{" in source:
            template = JinjaTemplate(
                source, control=known.control, variables={}, settings=chosen, where="t"
            )
        else:
            template = make_template(own_source(source), chosen, known)
        return inline_forms(chosen, template, known)

    return find


@pytest.mark.parametrize("source", [FIELD, "chatml", "minimind"])
def test_a_template_that_writes_reasoning_and_calls_has_them_as_fields(forms, source):
    found = forms(source)
    assert (found.fields, found.calls, found.tokens) == ((THINK,), "field", ())
    assert found.closing_tags == ["</think>", "</tool_call>"]


def test_the_tags_are_those_that_the_template_writes(forms):
    other = FIELD.replace("<think>", "[THINK]").replace("</think>", "[/THINK]")
    assert forms(other).fields == (("[THINK]", "[/THINK]"),)


def test_an_empty_block_is_the_reasoning_that_the_template_writes_as_one(forms):
    assert forms(FIELD).empty == forms("minimind").empty == ""
    assert forms("chatml").empty == "\n"


def test_the_template_knows_the_tags_where_the_tokenizer_does_not(forms):
    found = forms(FIELD, ("<|im_start|>", "<|im_end|>"))
    assert (found.fields, found.calls) == ((THINK,), "field")


@pytest.mark.parametrize("source", [BARE, "llama3", "alpaca", "plain"])
def test_tags_that_the_tokenizer_alone_has_are_tokens_where_they_stand(forms, source):
    found = forms(source)
    assert (found.fields, found.tokens, found.calls) == ((), (THINK,), "token")


def test_a_template_that_cuts_blocks_out_must_not_see_the_one_to_be_trained(forms):
    found = forms(DROPS)
    assert (found.tokens, found.hides, found.after_open) == ((THINK,), True, "\n")
    assert not found.loses_tokens


def test_a_template_that_writes_a_tag_of_its_own_before_each_reply_sees_them(forms):
    found = forms(CLOSES)
    assert (found.tokens, found.hides, found.loses_tokens) == ((THINK,), False, True)


@pytest.mark.parametrize("preset", ["torchtune", "nanochat", "baby-llama2"])
def test_presets_of_frameworks_that_read_no_tags_take_them_for_text(forms, preset):
    assert forms("plain", preset=preset).closing_tags == []


def test_preset_trl_lets_the_template_see_the_tags_as_transformers_does(forms):
    found = forms(FIELD, preset="trl")
    assert (found.fields, found.tokens, found.hides) == ((), (THINK,), False)
    assert (found.calls, found.loses_tokens) == ("token", False)
    assert forms(DROPS, preset="trl").loses_tokens


def test_preset_minimind_reads_reasoning_as_minimind_s_template_and_keeps_calls(forms):
    found = forms("minimind", preset="minimind")
    assert (found.fields, found.calls) == ((THINK,), "token")


def test_with_fields_every_known_tag_is_reasoning_whatever_the_template_does(forms):
    found = forms(BARE, ("<|im_start|>", "<|im_end|>"), inline_tags="fields")
    assert THINK in found.fields
    assert found.calls == "field"


def test_calls_that_a_template_writes_in_another_form_are_no_fields(forms):
    other = FIELD.replace('{"name": "\' +', "<function=' +").replace('", "arguments": ', ">")
    assert forms(other).calls == "token"


OPENS = DROPS.replace("'</think>' in content", "false").replace("\n' }}", "' }}")
"""As TRL's template for training DeepSeek-R1: it keeps what stands in replies."""

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
        write = partial(Writers(text, replace(vocabulary, named={})).write, chosen)
        renderer = ChatRenderer(chosen, "t", write)
        batch = renderer.render(whole_records([json.dumps({"messages": messages})]))
        control = [
            f"‹{text}›" if id_ >= 0 else text
            for text, id_ in zip(batch.text.to_pylist(), batch.control.tolist(), strict=True)
        ]
        noticed = {name: int(n.sum()) for name, n in batch.counters.items() if n.sum()}
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


def test_a_reply_may_hold_both(rendered):
    text, noticed, _ = rendered(FIELD, QUESTION, bot(f"<think>\nR\n</think>\n\nA\n{CALL}"))
    fields = bot("A", reasoning_content="R", tool_calls=CALLS)
    assert text == rendered(FIELD, QUESTION, fields)[0]
    assert noticed == {READ_REASONING: 1, READ_CALLS: 1}


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


def test_text_is_text_where_that_is_asked_for(rendered):
    text, noticed, _ = rendered(FIELD, QUESTION, bot("<think>R</think>A"), inline_tags="text")
    assert text.endswith("assistant\n<think>R</think>A‹<|im_end|>›\n")
    assert noticed == {KEPT_TAGS: 2}


def test_the_block_behind_a_prompt_that_opens_it_is_trained(rendered):
    text, noticed, (marked,) = rendered(DROPS, QUESTION, bot("<think>\nR\n</think>\n\nA"))
    assert text == "‹<|user_start|>›Q‹<|assistant_start|>›‹<think>›\nR\n‹</think>›\n\nA‹<eos>›"
    assert marked.endswith("<think>\n«R\n</think>\n\nA<eos>»")
    assert noticed == {READ_REASONING: 1}
    assert rendered(DROPS, QUESTION, bot("<think>R\n</think>\n\nA")) == (text, noticed, [marked])


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


def test_a_tag_that_is_no_control_token_is_written_beside_one_that_is(
    rendered, monkeypatch, vocabulary
):
    monkeypatch.delitem(vocabulary.control, "</think>")
    for source in (OPENS, "plain"):
        text, noticed, _ = rendered(source, QUESTION, bot("<think>R</think>A"))
        assert "‹<think>›R</think>A" in text
        assert noticed == {READ_REASONING: 1}


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
