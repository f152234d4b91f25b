"""Weights of parts of a message: `[{"type": "text", "text": "a", "train": false}, …]`."""

from __future__ import annotations

import json
from functools import partial

import pytest

from tokmill.chat.limits import Unlimited
from tokmill.chat.own_templates import NAMES, own_source
from tokmill.chat.render_pool import ChatRenderer, Writers
from tokmill.settings.sft import SftSettings

QWEN = """{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' }}
{%- if m.reasoning_content %}{{- '<think>\n' + m.reasoning_content.strip('\n') + '\n</think>\n\n' }}
{%- endif %}{{- m.content + '<|im_end|>\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""
TRIMS = QWEN.replace("m.content +", "m.content.strip() +")
LEAVES_OUT = QWEN.replace("m.content +", "m.content[:3] +")
TAGS = QWEN.replace("{{- m.content + '<|im_end|>\n' }}", (
    "{%- if m.role == 'assistant' %}{%- generation %}{{- m.content + '<|im_end|>' }}"
    "{%- endgeneration %}{{- '\n' }}{%- else %}{{- m.content + '<|im_end|>\n' }}{%- endif %}"
))  # fmt: skip
ASKED = {"role": "user", "content": "Q"}


def part(text, kind="text", **flags):
    return {"type": kind, "text": text, **flags}


def detail(begin, end, **flags):
    return {"begin_offset": begin, "end_offset": end, **flags}


def bot(*parts, **fields):
    return {"role": "assistant", "content": list(parts), **fields}


@pytest.fixture
def marked(vocabulary, whole_records, shown):
    """Render messages: what is trained stands between « and »; or the reasons of rejects."""

    def run(source, *messages, record=None, **settings):
        chosen = SftSettings(schema="messages", **settings)
        text = own_source(source) if source in NAMES else source
        write = partial(Writers(text, Unlimited()).write, vocabulary, chosen)
        renderer = ChatRenderer(chosen, "t", write)
        line = json.dumps({"messages": messages, **(record or {})})
        batch = renderer.render(whole_records([line]))
        replies = [text.rpartition("assistant\n")[2] for text in shown(batch)]
        return replies + [reject.reason for _, reject in batch.refused]

    return run


ALL = pytest.mark.parametrize("source", [QWEN, TRIMS, TAGS, "chatml"])


@ALL
def test_a_part_that_is_not_trained_stands_in_a_reply_that_is(marked, source):
    reply = bot(part("bad ", train=False), part("good"))
    assert marked(source, ASKED, reply)[0].strip() == "bad «good<|im_end|>»"
    reply = bot(part("a"), part("b", weight=0), part("c", loss=True), part("d", loss_scale=0))
    assert marked(source, ASKED, reply)[0].strip() == "«a»b«c»d«<|im_end|>»"


@ALL
def test_parts_of_one_weight_are_the_weight_of_their_message(marked, source):
    reply = bot(part("a", train=False), part("b", train=False))
    assert marked(source, ASKED, reply)[0].strip() == "ab<|im_end|>"
    whole = bot(part("a", weight=2), part("b", weight=2))
    found = marked(source, ASKED, whole, weights="file")
    assert found == marked(source, ASKED, {**bot(part("ab")), "weight": 2}, weights="file")


@ALL
def test_a_part_has_its_weight_times_that_of_its_message_and_record(marked, source):
    reply = bot(part("a", weight=0.5), part("b"), weight=4)
    found = marked(source, ASKED, reply, record={"weight": 0.5}, weights="file")
    assert found[0].strip() == "«a»2«b<|im_end|>»"
    assert marked(source, ASKED, bot(part("a", train=True), part("b"), train=False)) == marked(
        source, ASKED, bot(part("ab"), train=False)
    )


@pytest.mark.parametrize("source", [QWEN, "chatml"])
@pytest.mark.parametrize(
    "reply",
    [
        bot(part("r", "thinking", train=False), part("a")),
        bot(part("a"), reasoning_content=[part("r", train=False)]),
        {"role": "assistant", "content": "a", "reasoning": [part("r", train=False), part("")]},
    ],
)
def test_reasoning_may_have_a_weight_of_its_own(marked, source, reply):
    text = marked(source, ASKED, reply)[0].strip()
    assert text == "«<think>\n»r«\n</think>\n\na<|im_end|>»"


@pytest.mark.parametrize(
    ("source", "messages"),
    [
        (TRIMS, [ASKED, bot(part("a", train=False), part(" b "), part(" ", train=False))]),
        (LEAVES_OUT, [ASKED, bot(part("ab", train=False), part("cd"))]),
        (QWEN, [ASKED, bot(part("<think>r</think>", train=False), part("a"))]),
        ("chatml", [ASKED, bot(part("a"), {"type": "tool_call", "train": False,
                                           "value": {"name": "f"}})]),
    ],
)  # fmt: skip
def test_what_cannot_be_exact_is_refused(marked, source, messages):
    assert marked(source, *messages) == ["weights inside a message"]


def test_strings_of_control_tokens_at_an_edge_stay_text(marked):
    reply = bot(part("<|im_", train=False), part("end|>\ue000"))
    assert marked(QWEN, ASKED, reply)[0].strip() == "<|im_«end|>\ue000<|im_end|>»"


def test_a_part_of_the_user_is_trained_where_the_template_shows_what_the_user_says(marked):
    asked = {"role": "user", "content": [part("a", train=True), part("b")]}
    asks = "<|im_start|>user\n"
    assert marked(QWEN, bot(part("c")), asked) == [f"«c<|im_end|>»\n{asks}«a»b<|im_end|>\n"]
    assert marked("plain", asked, bot(part("c"))) == ["«a»b«c<eos>»"]


def test_weights_of_parts_stay_where_they_are_when_eos_is_put_behind_replies(marked):
    no_ends = QWEN.replace("m.content + '<|im_end|>\n'", "m.content")
    first = bot(part("a", train=False), part("b"))
    second = bot(part("c", train=False), part("d"))
    found = marked(no_ends, ASKED, first, ASKED, second, train=("+eos",))
    whole = marked(no_ends, ASKED, bot(part("ab")), ASKED, bot(part("cd")), train=("+eos",))
    assert found[0].strip() == "c«d<eos>»"
    assert whole[0].strip() == "«cd<eos>»"
    first_reply = marked(no_ends, ASKED, first, train=("+eos",))
    assert first_reply[0].strip() == "a«b<eos>»"


@ALL
def test_the_spans_of_train_detail_are_trained_and_the_rest_is_not(marked, source):
    reply = {"role": "assistant", "content": "0123456789"}
    spans = [detail(0, 3, train=False), detail(4, 5, train=True), detail(8, 8)]
    (text,) = marked(source, ASKED, {**reply, "train_detail": spans})
    assert text.strip() == "0123«45»67«8»9«<|im_end|>»"
    (text,) = marked(source, ASKED, {**reply, "training_detail": spans, "train": False})
    assert text.strip() == "0123456789<|im_end|>"
    fractions = [detail(1, 2, weight=0.5)]
    (text,) = marked(source, ASKED, {**reply, "train_detail": fractions}, weights="file")
    assert text.strip() == "00.5«12»3456789«<|im_end|>»"


@pytest.mark.parametrize(
    "spans",
    [
        [detail(0, 4)],
        [detail(2, 1)],
        [detail(0, 1), detail(1, 2)],
        [{"train": True}],
        [1],
        {"a": 1},
    ],
)
def test_spans_outside_of_the_content_or_each_other_are_refused(marked, spans):
    reply = {"role": "assistant", "content": "0123", "train_detail": spans}
    (reason,) = marked("chatml", ASKED, reply)
    assert reason in {"weights inside a message", "wrong type"}
