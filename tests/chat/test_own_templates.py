"""The built-in templates, through the renderer, and as templates of transformers."""

from __future__ import annotations

import jinja2
import pytest
from jinja2.ext import Extension

from tokmill.chat.control_strings import Vocabulary
from tokmill.chat.conversation import Conversation
from tokmill.chat.own_templates import BUILT_IN, own_source
from tokmill.chat.segments import Sample
from tokmill.chat.template_source import make_template
from tokmill.errors import UsageError
from tokmill.settings.sft import SftSettings

WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"function": {"name": "weather", "arguments": '{"city": "北京"}'}}],
}


def test_every_message_stands_between_its_header_and_the_end_of_turn(show_messages):
    assert show_messages("chatml", ("system", "S"), ("user", "U"), ("assistant", "A")) == [
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n"
        "<|im_start|>assistant\n«A<|im_end|>»\n"
    ]


def test_a_default_system_message_goes_before_conversations_without_one(show_messages):
    expected = "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nU<|im_end|>\n"
    assert show_messages("chatml", ("user", "U"), default_system="Be kind.") == [expected]
    told = show_messages("chatml", ("system", ""), ("user", "U"), default_system="Be kind.")
    assert told == ["<|im_start|>system\n<|im_end|>\n<|im_start|>user\nU<|im_end|>\n"]
    shown = show_messages("qwen2.5-training", ("user", "U"), default_system="Be <eos> kind.")
    assert shown == [expected.replace("Be", "Be <eos>")]  # in place of the family's own
    drops = {"default_system": "Be kind.", "role_names": ("system=drop",)}
    assert show_messages("chatml", ("system", "S"), ("user", "U"), **drops) == [expected]


def test_tools_calls_and_their_results_are_written_as_qwen_does(show_messages):
    results = [("tool", "sunny"), ("tool", "windy")]
    (text,) = show_messages("chatml", ("user", "U"), CALL, *results, tools=[WEATHER])
    head, tail = text.split("<|im_start|>user\nU<|im_end|>\n")
    assert head.startswith("<|im_start|>system\n# Tools\n\nYou may call one or more functions")
    assert (
        '\n<tools>\n{"type": "function", "function": {"name": "weather", "parameters": '
        '{"type": "object"}}}\n</tools>\n' in head
    )
    assert head.endswith("</tool_call><|im_end|>\n")
    assert tail == (
        "<|im_start|>assistant\n«<tool_call>\n"
        '{"name": "weather", "arguments": {"city": "北京"}}\n</tool_call><|im_end|>»\n'
        "<|im_start|>user\n<tool_response>\nsunny\n</tool_response>\n"
        "<tool_response>\nwindy\n</tool_response><|im_end|>\n"
    )


def test_reasoning_is_written_between_think_tags(show_messages):
    reply = {"role": "assistant", "content": "4", "reasoning_content": "\n2 + 2\n"}
    (text,) = show_messages("chatml", ("user", "U"), reply)
    assert text.endswith("assistant\n«<think>\n2 + 2\n</think>\n\n4<|im_end|>»\n")
    (masked,) = show_messages("chatml", ("user", "U"), reply, train=("-reasoning",))
    assert masked.endswith("assistant\n<think>\n2 + 2\n</think>\n\n«4<|im_end|>»\n")


def test_minimind_has_think_tags_in_every_reply(show_messages):
    (text,) = show_messages("minimind", ("user", "U"), ("assistant", "\nA"), preset="minimind")
    assert text == (
        "<|im_start|>user\nU<|im_end|>\n"
        "<|im_start|>assistant\n«<think>\n\n</think>\n\nA<|im_end|>\n»"
    )


def test_torchtune_ends_in_the_token_alone_and_trains_the_header(show_messages):
    (text,) = show_messages(
        "torchtune", ("user", "U"), ("assistant", "A"), ("user", "V"), ("assistant", "B"),
        preset="torchtune",
    )  # fmt: skip
    assert text == (
        "<|im_start|>user\nU<|im_end|>\n«<|im_start|>assistant\nA<|im_end|>\n»"
        "<|im_start|>user\nV<|im_end|>\n«<|im_start|>assistant\nB<|im_end|>»"
    )


def test_torchtune_s_texts_are_encoded_one_by_one(make_renderer, whole_records):
    line = '{"messages": [{"role": "user", "content": "U"}, {"role": "assistant", "content": "A"}]}'
    batch = make_renderer("torchtune", preset="torchtune").render(whole_records([line]))
    texts = zip(batch.text.to_pylist(), batch.control.tolist(), strict=True)
    assert [text for text, id_ in texts if id_ == -2] == ["user\n", "U", "\n", "assistant\n", "A"]
    assert not (batch.control == -1).any()


def test_what_torchtune_cannot_write_is_refused(show_messages):
    (refused,) = show_messages("torchtune", ("user", "U"), CALL)
    assert refused.startswith("not in this template: message 2 has tool_calls")


PYTHON = {
    "role": "assistant",
    "content": "Let me see: ",
    "tool_calls": [{"function": {"name": "python", "arguments": {"code": "1+1"}}}],
}


def test_llama3_trims_contents_and_begins_with_bos_once(show_messages):
    assert show_messages("llama3", ("user", " U\n"), ("assistant", "\tA ")) == [
        "<bos><|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n«A<|eot_id|>»"
    ]


@pytest.mark.parametrize(
    ("messages", "tools", "found"),
    [
        ([("user", "U"), PYTHON], None, "message 2 has tool_calls"),
        ([("tool", "T")], None, "message 1: template llama3 has no role tool"),
        ([("user", "U")], [{"name": "f"}], "cannot write tools"),
    ],
)
def test_what_llama3_has_no_words_for_is_refused(show_messages, messages, tools, found):
    (refused,) = show_messages("llama3", *messages, tools=tools)
    assert refused.startswith("not in this template: ")
    assert found in refused


def test_alpaca_s_system_message_is_the_preamble_and_turns_follow_a_blank_line(show_messages):
    turns = [("user", "U"), ("assistant", "A"), ("user", "V"), ("assistant", "B")]
    assert show_messages("alpaca", ("system", "S"), *turns) == [
        "S\n\n### Instruction:\nU\n\n### Response:\n«A<eos>»\n\n"
        "### Instruction:\nV\n\n### Response:\n«B<eos>»"
    ]


def test_alpaca_and_stanford_s_input_are_the_published_prompts(make_renderer, whole_records, shown):
    lines = [
        '{"instruction": "Add.", "input": "1, 2", "output": "3"}',
        '{"instruction": "Go.", "input": "", "output": "Gone."}',
    ]
    renderer = make_renderer("alpaca", schema="alpaca", instruction="stanford")
    assert shown(renderer.render(whole_records(lines))) == [
        "Below is an instruction that describes a task, paired with an input that provides "
        "further context. Write a response that appropriately completes the request.\n\n"
        "### Instruction:\nAdd.\n\n### Input:\n1, 2\n\n### Response:\n«3<eos>»",
        "Below is an instruction that describes a task. Write a response that appropriately "
        "completes the request.\n\n### Instruction:\nGo.\n\n### Response:\n«Gone.<eos>»",
    ]


def test_plain_is_contents_end_to_end(show_messages):
    turns = [("user", "U"), ("assistant", "A"), ("user", "V"), ("assistant", "B")]
    assert show_messages("plain", ("system", "S"), *turns) == ["SU«A<eos>»V«B<eos>»"]


def test_baby_llama2_puts_bos_between_prompt_and_answer(show_messages):
    assert show_messages("baby-llama2", ("user", "U"), ("assistant", "A")) == ["U<bos>«A<eos>»"]
    (refused,) = show_messages("baby-llama2", ("user", "U"))
    assert "has one prompt and one answer; found user" in refused


def test_baby_llama2_needs_a_bos_token():
    bare = Vocabulary({"<eos>": 0}, "<eos>", "", {})
    with pytest.raises(UsageError, match=r"writes bos, .*: give --bos-token"):
        make_template(own_source("baby-llama2"), SftSettings(), bare)


def test_nanochat_begins_with_bos_and_joins_system_and_first_user(show_messages):
    assert show_messages("nanochat", ("system", "S"), ("user", "U"), ("assistant", "A")) == [
        "<|bos|><|user_start|>S\n\nU<|user_end|><|assistant_start|>«A<|assistant_end|>»"
    ]


def test_nanochat_s_python_stands_in_the_reply_and_its_output_is_not_trained(show_messages):
    turns = [("user", "U"), PYTHON, ("tool", "2"), ("assistant", "It is 2."), ("user", "V")]
    assert show_messages("nanochat", *turns) == [
        "<|bos|><|user_start|>U<|user_end|><|assistant_start|>«Let me see: <|python_start|>1+1"
        "<|python_end|>»<|output_start|>2<|output_end|>«It is 2.<|assistant_end|>»"
        "<|user_start|>V<|user_end|>"
    ]


@pytest.mark.parametrize(
    "messages",
    [[("assistant", "A")], [("user", "U"), ("user", "V")], [("user", "U"), ("tool", "T")]],
)
def test_nanochat_wants_user_and_assistant_in_turn(show_messages, messages):
    (refused,) = show_messages("nanochat", *messages)
    assert refused.startswith("not in this template: message ")


class Generation(Extension):
    tags = frozenset({"generation"})

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@pytest.mark.parametrize("name", BUILT_IN)
def test_elsewhere_the_file_writes_the_same_text_and_asks_for_a_reply(vocabulary, name):
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation])
    messages = [{"role": "user", "content": "U"}, {"role": "assistant", "content": "A"}]
    sample = Sample(vocabulary.control)
    make_template(own_source(name), SftSettings(), vocabulary).render(
        Conversation(messages, [None, None]), sample
    )
    elsewhere = environment.from_string(own_source(name))
    named = {"messages": messages, **vocabulary.named}
    text = elsewhere.render(**named)
    assert text == sample.whole_text()
    prompt = elsewhere.render(**named | {"messages": messages[:1]}, add_generation_prompt=True)
    assert text.startswith(prompt)
