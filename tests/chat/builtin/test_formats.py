from __future__ import annotations

import pytest

from tokmill.chat.control_strings import Vocabulary
from tokmill.chat.templates import make_template
from tokmill.errors import UsageError
from tokmill.settings.sft import SftSettings

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


def test_alpaca_writes_the_instruction_under_its_heading(show_messages):
    assert show_messages("alpaca", ("user", "U"), ("assistant", "A")) == [
        "Below is an instruction that describes a task. Write a response that appropriately "
        "completes the request.\n\n### Instruction:\nU\n\n### Response:\n«A<eos>»"
    ]


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
    with pytest.raises(UsageError, match="name it with --bos-token"):
        make_template("baby-llama2", SftSettings(), Vocabulary({"<eos>": 0}, "<eos>", "", {}))


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
