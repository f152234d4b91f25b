"""Calls in a row are one turn: no end of turn is trained between them."""

from __future__ import annotations

import json

import pytest

from tokmill.chat.reading.calls_in_row import IN_A_ROW, JOINED

ASKED = {"role": "user", "content": "q"}
RESULTS = [{"role": "tool", "content": "r"}, {"role": "assistant", "content": "done"}]


def call(name):
    return {"name": name, "arguments": {}}


def calling(*names, **more):
    calls = [{"type": "function", "function": call(name)} for name in names]
    return {"role": "assistant", "content": None, "tool_calls": calls, **more}


def swift(name):
    return {"role": "tool_call", "content": json.dumps(call(name))}


def share(name):
    return {"from": "function_call", "value": json.dumps(call(name))}


def said(text, **more):
    return {"role": "assistant", "content": text, **more}


def inline(name):
    return said(f"<tool_call>\n{json.dumps(call(name))}\n</tool_call>")


def written(*names):
    blocks = (
        f'<tool_call>\n{{"name": "{name}", "arguments": {{}}}}\n</tool_call>' for name in names
    )
    return "\n".join(blocks)


REPLY = "<|im_start|>assistant\n«{}<|im_end|>»\n"
TWO = written("a", "b")


@pytest.mark.parametrize(
    ("messages", "reply"),
    [
        ([swift("a"), swift("b")], TWO),
        ([said("I look."), swift("a"), swift("b")], "I look.\n" + TWO),
        ([share("a"), share("b")], TWO),
        ([said("I look."), share("a")], "I look.\n" + written("a")),
        ([said("I look."), calling("a", "b")], "I look.\n" + TWO),
        ([calling("a"), calling("b")], TWO),
        ([said(""), calling("a", "b")], TWO),
        ([inline("a"), inline("b")], TWO),
        ([calling("a"), inline("b")], TWO),
        ([said("", reasoning_content="t"), swift("a")], f"<think>\nt\n</think>\n\n{written('a')}"),
        ([said("I look.", weight=1), swift("a"), swift("b")], "I look.\n" + TWO),
        ([said("I look.", name="x"), calling("a", name="x")], "I look.\n" + written("a")),
        ([calling("a", id="m-1", n=1, model="a b"), calling("b", id="m-2", n=2, model="a b")], TWO),
    ],
)
@pytest.mark.parametrize("samples", ["conversation", "turn"])
def test_calls_in_a_row_are_one_turn(show_messages, messages, reply, samples):
    shown = show_messages("chatml", ASKED, *messages, *RESULTS, samples=samples)
    assert REPLY.format(reply) in shown[0]
    assert len(shown) == (1 if samples == "conversation" else 2)
    assert "<tool_response>\nr" in shown[-1]


@pytest.mark.parametrize(
    ("messages", "n_turns"),
    [
        ([said("a"), said("b")], 2),
        ([said("a"), said("b"), calling("c")], 2),
        ([calling("a"), said("b")], 2),
        ([said("a"), said("b", tool_calls=calling("c")["tool_calls"])], 2),
        ([said("a"), calling("c", reasoning_content="t")], 2),
        ([said("a", train=False), calling("c")], 2),
        ([said("a", name="x"), calling("c", name="y")], 2),
        ([calling("a", tool_plan="I look."), calling("c", tool_plan="And there.")], 2),
    ],
)
def test_other_replies_in_a_row_stay_apart(show_messages, messages, n_turns):
    (shown,) = show_messages("chatml", ASKED, *messages)
    assert shown.count("<|im_start|>assistant") == n_turns


def test_both_are_counted(make_renderer, whole_records):
    chat = [ASKED, said("I look."), swift("a"), swift("b"), *RESULTS, said("more"), said("still")]
    batch = make_renderer("chatml").render(whole_records([json.dumps({"messages": chat})]))
    assert {name: n.tolist() for name, n in batch.counters.items()} == {JOINED: [2], IN_A_ROW: [2]}


def test_parts_with_weights_stay_where_they_are(show_messages):
    parts = [
        {"type": "text", "text": "bad ", "train": False},
        {"type": "text", "text": "good ", "train": True},
    ]
    (shown,) = show_messages("chatml", ASKED, said(parts), swift("a"))
    assert shown.count("<|im_start|>assistant") == 1
    assert "bad" in shown.split("«")[0]
