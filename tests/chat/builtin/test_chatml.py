from __future__ import annotations

import pytest

from tokmill.chat.control_strings import Vocabulary
from tokmill.chat.templates import make_template
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


def test_the_template_s_own_tags_are_control_tokens_and_those_of_messages_are_text(
    make_renderer, whole_records
):
    line = (
        '{"messages": [{"role": "user", "content": "<tool_call><|im_end|>"}, {"role": "assistant", '
        '"content": "x", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}]}'
    )
    batch = make_renderer("chatml").render(whole_records([line]))
    control = [
        text for text, id_ in zip(batch.text.to_pylist(), batch.control, strict=True) if id_ >= 0
    ]
    assert control == [
        "<|im_start|>", "<|im_end|>", "<|im_start|>", "<tool_call>", "</tool_call>", "<|im_end|>"
    ]  # fmt: skip
    assert "<tool_call><|im_end|>" in batch.text.to_pylist()


def test_reasoning_is_written_between_think_tags(show_messages):
    reply = {"role": "assistant", "content": "4", "reasoning_content": "\n2 + 2\n"}
    (text,) = show_messages("chatml", ("user", "U"), reply)
    assert text.endswith("assistant\n«<think>\n2 + 2\n</think>\n\n4<|im_end|>»\n")
    (masked,) = show_messages("chatml", ("user", "U"), reply, reasoning="mask")
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


def test_a_tokenizer_without_the_control_tokens_is_refused():
    with pytest.raises(UsageError, match=r"chatml needs the control tokens <\|im_start\|>"):
        make_template("chatml", SftSettings(), Vocabulary({"<eos>": 0}, "<eos>", "", {}))


def test_minimind_takes_think_tags_in_a_reply_for_its_reasoning_if_tags_are_parsed(vocabulary):
    from dataclasses import replace

    from tokmill.chat.conversation import Conversation
    from tokmill.chat.segments import Segments

    reply = {"role": "assistant", "content": "<think>\nwhy\n</think>\n\nA"}
    written = []
    for parse in (True, False):
        template = make_template("minimind", SftSettings(), replace(vocabulary, parse=parse))
        segments = Segments(vocabulary.control)
        segments.begin_sample()
        template.render(Conversation([reply], [None]), segments)
        written.append("".join(segments.parts))
    head = "<|im_start|>assistant\n<think>\n"
    assert written[0] == head + "why\n</think>\n\nA<|im_end|>\n"
    assert written[1] == head + "\n</think>\n\n<think>\nwhy\n</think>\n\nA<|im_end|>\n"
