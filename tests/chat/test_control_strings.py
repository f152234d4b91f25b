from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from tokmill.chat.control_strings import (
    KEPT_CONTROL,
    KEPT_TAGS,
    ControlStringCounter,
    RenderedTexts,
)
from tokmill.chat.reading.detect import resolve_rendered_text, text_note
from tokmill.errors import UsageError
from tokmill.settings.sft import SftSettings


def counted(kept: ControlStringCounter, text: str) -> dict[str, int]:
    noticed = Counter[str]()
    kept.count([{"role": "user", "content": text}], noticed)
    return dict(noticed)


def test_tags_and_other_control_strings_are_counted_apart(vocabulary):
    kept = ControlStringCounter(vocabulary)
    text = "<think>a</think> <tool_call> <|im_end|><|im_start|> <eos> <tool> [THINK]"
    assert counted(kept, text) == {KEPT_TAGS: 3, KEPT_CONTROL: 3}


def test_strings_that_become_tokens_are_not_counted(vocabulary):
    assert counted(ControlStringCounter(replace(vocabulary, parse=True)), "<think><eos>") == {}
    parsed = frozenset({"<think>"})
    control = {"<eos>": 0}
    kept = ControlStringCounter(replace(vocabulary, control=control, parsed=parsed))
    assert counted(kept, "<think></think>") == {KEPT_TAGS: 1}


CONTROL = ("<eos>", "<think>", "</think>", "÷", "<|im_end|>")
PLAIN = [{"text": f"a text {i}, <b> of [words] # no chat"} for i in range(9)]
CHAT = {"text": "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n"}


def settled(records, schema="text", **settings) -> str:
    asked = SftSettings(schema=schema, **settings)
    return resolve_rendered_text(asked, records, CONTROL, "first records of a.jsonl").rendered_text


@pytest.mark.parametrize(
    ("text", "sign"),
    [
        (CHAT["text"], "<|im_start|>"),
        ("### Instruction:\nQ\n\n### Response:\nA", "### Instruction: … ### Response:"),
        ("### Human: Q### Assistant: A", "### Human: … ### Assistant:"),
        ("\n\nHuman: Q\n\nAssistant: A", "Human:  … Assistant:"),
        ("<s>[INST] Q [/INST] A</s>", "[INST] … [/INST]"),
        ("<start_of_turn>user\nQ", "<start_of_turn>"),
        ("a document<eos>", "<eos>"),
        ("### Instruction: alone", ""),
        ("[/INST] before [INST]", ""),
        ("<think>a</think> 6 ÷ 3", ""),
        ("", ""),
    ],
)
def test_a_rendered_conversation_is_known_by_its_frame_or_a_control_token(text, sign):
    known = RenderedTexts(CONTROL)
    assert known.sign(text) == sign


def test_a_run_of_rendered_texts_is_refused_with_what_to_do():
    with pytest.raises(UsageError) as error:
        settled([CHAT, *PLAIN])
    assert str(error.value) == (
        "first records of a.jsonl: rendered conversations in 1 of 10 texts (found "
        "'<|im_start|>'), which would become one reply each, their control tokens spelled out: "
        "--rendered-text=parse takes them as they are and trains all of each, --rendered-text=text "
        "wraps them; without masks: tokmill pretrain --control-tokens-in-text=parse"
    )


@pytest.mark.parametrize(
    ("records", "schema"),
    [
        ([], "text"),
        (PLAIN, "text"),
        ([CHAT, *PLAIN, *PLAIN], "text"),
        ([{"text": None}, {}], "text"),
        ([{"messages": [], "text": CHAT["text"]}], "messages"),
        ([{"messages": [], "text": CHAT["text"]}], "mixed"),
    ],
)
def test_texts_that_quote_a_template_now_and_then_and_chats_go_on(records, schema):
    assert settled(records, schema) == "text"


def test_a_text_that_is_parsed_has_its_control_tokens_and_is_trained_whole(
    make_renderer, whole_records, shown
):
    renderer = make_renderer("plain", schema="text", rendered_text="parse")
    batch = renderer.render(whole_records([json.dumps(CHAT), json.dumps({"text": "a <eos>"})]))
    assert shown(batch) == [f"«{CHAT['text']}»", "«a <eos>»"]
    control = [t for t, id_ in zip(batch.text.to_pylist(), batch.control, strict=True) if id_ >= 0]
    assert control == ["<|im_start|>", "<|im_end|>"] * 2 + ["<eos>"]
    assert batch.counters == {}
    assert renderer.name == "text as it is"


def test_what_texts_become_is_said():
    assert text_note(SftSettings(schema="messages")) == ""
    assert "one assistant message; all of it" in text_note(SftSettings(schema="text"))
    parse = SftSettings(schema="text", rendered_text="parse")
    assert "as it is, control tokens read; all of it" in text_note(parse)
