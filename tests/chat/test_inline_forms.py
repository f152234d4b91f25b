from __future__ import annotations

from dataclasses import replace

import pytest

from tokmill.chat.inline_forms import InlineForms, inline_forms
from tokmill.chat.jinja_template import JinjaTemplate
from tokmill.chat.templates import make_template
from tokmill.settings.schema import SftSettings

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
            template = make_template(source, chosen, known)
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


def test_tags_that_neither_has_are_text(forms):
    found = forms(BARE, ("<|im_start|>", "<|im_end|>"))
    assert found.closing_tags == []


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


def test_nothing_is_recognised_where_all_is_text_or_parsed_anyway(forms):
    assert forms(FIELD, inline_tags="text").closing_tags == []
    assert forms(FIELD, parse=True).closing_tags == []


def test_with_fields_every_known_tag_is_reasoning_whatever_the_template_does(forms):
    found = forms(BARE, ("<|im_start|>", "<|im_end|>"), inline_tags="fields")
    assert THINK in found.fields
    assert found.calls == "field"
    assert found.loses_field


def test_calls_that_a_template_writes_in_another_form_are_no_fields(forms):
    other = FIELD.replace('{"name": "\' +', "<function=' +").replace('", "arguments": ', ">")
    assert forms(other).calls == "token"
