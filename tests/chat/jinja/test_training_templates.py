from __future__ import annotations

import pytest

from tokmill.chat.control_strings import Vocabulary
from tokmill.chat.conversation import ChatError, Conversation
from tokmill.chat.jinja.template import BY_TWIN, JinjaTemplate
from tokmill.chat.own_templates import TRAINING, own_source
from tokmill.chat.segments import Segments
from tokmill.chat.template_source import make_template, template_source
from tokmill.chat.weights import mask_rule, segment_weights
from tokmill.errors import UsageError
from tokmill.settings.sft import SftSettings

TOKENS = ("<eos>", "<think>", "</think>", *dict.fromkeys(t for ts in TRAINING.values() for t in ts))
CONTROL = {string: number for number, string in enumerate(TOKENS)}
NAMED = {"eos_token": "<eos>", "bos_token": "<bos>"}

QWEN3 = (
    "{%- set ns = namespace(last=0) %}"
    "{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}"
    "{%- endfor %}"
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' }}"
    "{%- if m.role == 'assistant' and loop.index0 > ns.last %}"
    "{{- '<think>\n' + (m.reasoning_content or '') + '\n</think>\n\n' }}{%- endif %}"
    "{{- m.content }}"
    "{%- for c in m.tool_calls or [] %}"
    "{{- '<tool_call>\n' + {'name': c.function.name, 'arguments': c.function.arguments}|tojson + "
    "'\n</tool_call>' }}{%- endfor %}"
    "{{- '<|im_end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
"""The form of Qwen3's own template: the reasoning of earlier turns is dropped."""

USER = {"role": "user", "content": "a"}


def bot(content, reasoning=None):
    said = {"role": "assistant", "content": content}
    return said if reasoning is None else {**said, "reasoning_content": reasoning}


def shown(name, *messages, variables=None, **settings):
    """The sample as text, what is trained between « and »."""
    settings = SftSettings(template=name, **settings)
    vocabulary = Vocabulary(CONTROL, "<eos>", "", NAMED)
    template = make_template(template_source(settings, "", None), settings, vocabulary)
    segments = Segments(CONTROL)
    segments.begin_sample()
    template.render(
        Conversation(list(messages), [None] * len(messages), variables=variables), segments
    )
    columns = segments.columns()
    weights, _ = segment_weights(columns.table, mask_rule(settings))
    parts = [f"«{t}»" if w else t for t, w in zip(columns.text.to_pylist(), weights, strict=True)]
    return "".join(parts).replace("»«", "")


def test_qwen3_keeps_the_reasoning_of_every_turn():
    assert shown("qwen3-training", USER, bot("b", "r"), USER, bot("c", "s")) == (
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
        "«<think>\nr\n</think>\n\nb<|im_end|>»\n"
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
        "«<think>\ns\n</think>\n\nc<|im_end|>»\n"
    )


def test_qwen3_writes_every_reply_as_it_is_where_it_is_the_last():
    asked, thought = (
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n",
        "<think>\n\n</think>\n\n",
    )
    messages = (USER, bot("b"), USER, bot("c"))
    assert shown("qwen3-training", *messages) == "".join(
        f"{asked}«{thought}{text}<|im_end|>»\n" for text in "bc"
    )
    quiet = "".join(f"{asked}{thought}«{text}<|im_end|>»\n" for text in "bc")
    assert shown("qwen3-training", *messages, template_kwargs='{"enable_thinking": false}') == quiet
    assert shown("qwen3-training", *messages, variables={"enable_thinking": False}) == quiet
    # As with the form of the model's own template, one sample for each turn.
    for n in (2, 4):
        own, _ = rendered(QWEN3, *messages[:n], samples="turn")
        last = "".join(own).rpartition("<|im_start|>assistant\n")[2]
        assert last == f"{thought}{'bc'[n // 2 - 1]}<|im_end|>\n"


def test_phi_ends_the_text_with_eos_once():
    messages = (USER, bot("b"), USER, bot("c"))
    assert shown("phi-4-mini-training", *messages) == (
        "<|user|>a<|end|><|assistant|>«b<|end|>»<|user|>a<|end|><|assistant|>«c<|end|><eos>»"
    )
    assert shown("phi-3-training", *messages, USER) == (
        "<|user|>\na<|end|>\n<|assistant|>\n«b<|end|>»\n<|user|>\na<|end|>\n"
        "<|assistant|>\n«c<|end|>»\n<|user|>\na<|end|>\n<eos>"
    )


def test_deepseek_is_asked_with_the_opening_tag():
    assert shown("deepseek-r1-training", USER, bot("b", "r"), USER, bot("c")) == (
        "<bos><｜User｜>a<｜Assistant｜><think>\n«r\n</think>\n\nb<｜end▁of▁sentence｜>»"
        "<｜User｜>a<｜Assistant｜>«c<｜end▁of▁sentence｜>»"
    )


@pytest.mark.parametrize("name", TRAINING)
def test_every_training_template_has_tags_and_needs_the_control_tokens_of_its_models(name):
    assert "generation" in own_source(name)
    settings = SftSettings(template=name)
    with pytest.raises(UsageError, match=f"template {name} needs the control tokens"):
        make_template(own_source(name), settings, Vocabulary({"<eos>": 0}, "<eos>", "", NAMED))


def rendered(source, *messages, **settings):
    """The parts of a sample, and what is noted."""
    template = JinjaTemplate(
        source, control=CONTROL, variables=NAMED, settings=SftSettings(**settings), where="t.jinja"
    )
    segments = Segments(CONTROL)
    segments.begin_sample()
    template.render(Conversation(list(messages), [None] * len(messages)), segments)
    return segments.columns().text.to_pylist(), dict(segments.noted)


def test_where_a_tokenizers_template_hides_turns_the_one_of_its_family_writes_them():
    chat = [USER, bot("b", "hm"), USER, bot("c", "so")]
    text, noted = rendered(QWEN3, *chat)
    assert "".join(text) == shown("qwen3-training", *chat).replace("«", "").replace("»", "")
    assert noted == {f"{BY_TWIN} qwen3-training": 1}
    assert rendered(QWEN3, *chat[:2])[1] == {}
    # A sample for each turn shows the prompt of inference, with its hidden reasoning.
    text, noted = rendered(QWEN3, *chat, samples="turn")
    assert ("hm" in "".join(text), noted) == (False, {})
    with pytest.raises(ChatError, match="use a template with generation tags, or one sample per"):
        rendered(QWEN3.replace("<|im_start|>", "<|start|>"), *chat)
    with pytest.raises(ChatError, match="use a template with generation tags, or one sample per"):
        rendered(QWEN3, *chat, spans="prefix")
