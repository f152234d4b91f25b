from __future__ import annotations

import json

import pytest

from tests.chat.test_inline_forms import BARE, DROPS, FIELD
from tokmill.chat.inline_reader import LOST_REASONING, READ_CALLS, READ_REASONING
from tokmill.chat.jinja_template import JinjaTemplate
from tokmill.chat.kept_strings import KEPT_TAGS
from tokmill.chat.renderer import ChatRenderer
from tokmill.chat.rule import mask_rule
from tokmill.chat.templates import make_template
from tokmill.settings.schema import SftSettings

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
        if "{" in source:
            template = JinjaTemplate(
                source, control=vocabulary.control, variables={}, settings=chosen, where="t"
            )
        else:
            template = make_template(source, chosen, vocabulary)
        renderer = ChatRenderer(chosen, template, mask_rule(chosen), vocabulary)
        batch = renderer.render(whole_records([json.dumps({"messages": messages})]))
        control = [
            f"‹{text}›" if id_ >= 0 else text
            for text, id_ in zip(batch.text.to_pylist(), batch.control.tolist(), strict=True)
        ]
        noticed = {name: int(n.sum()) for name, n in batch.noticed.items() if n.sum()}
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


def test_a_second_block_is_text_and_counted(rendered):
    text, noticed, _ = rendered(FIELD, QUESTION, bot("<think>R</think>A<think>S</think>"))
    assert text.endswith("‹</think>›\n\nA<think>S</think>‹<|im_end|>›\n")
    assert noticed == {READ_REASONING: 1, KEPT_TAGS: 2}


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
    _, _, (marked,) = rendered("plain", QUESTION, reply, reasoning="mask")
    assert marked == "Q<think>R</think>«A<eos>»"


def test_a_template_that_leaves_reasoning_out_is_counted(rendered):
    _, noticed, _ = rendered(BARE, QUESTION, bot("A", reasoning_content="R"))
    assert noticed == {LOST_REASONING: 1}


def test_private_use_characters_in_a_text_stay_what_they_are(rendered):
    used = "".join(map(chr, range(0xF8FF, 0xF8F0, -1)))
    text, _, _ = rendered("plain", QUESTION, bot(f"<think>{used}</think>{used}"))
    assert text == f"Q‹<think>›{used}‹</think>›{used}‹<eos>›"
    every = "".join(map(chr, range(0xE000, 0xF900)))
    _, refused, _ = rendered("plain", QUESTION, bot(f"<think>{every}</think>A"))
    assert refused == ["private-use characters"]
