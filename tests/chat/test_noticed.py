from __future__ import annotations

import pytest

from tokmill.chat.noticed import LOST, LOST_CALLS, LOST_MESSAGES, LOST_REASONING, LOST_TOOLS

CALL = {"type": "function", "function": {"name": "look", "arguments": {"x": 1}}}
CALLS = {"role": "assistant", "content": "Let me look.", "tool_calls": [CALL]}
REPLY = "{% generation %}{{ m.content }}<eos>{% endgeneration %}"
TEXTS_ALONE = (
    "{% for m in messages %}{% if m.role == 'assistant' %}" + REPLY + "{% elif m.role == 'user' or "
    "loop.first %}{{ m.content }}{% endif %}{% endfor %}"
)
HIDES_REASONING = (
    "{% for m in messages %}{% if m.role == 'assistant' %}"
    "{{ m.reasoning_content if loop.last }}" + REPLY + "{% else %}{{ m.content }}{% endif %}"
    "{% endfor %}"
)


def said(role, content, **more):
    return {"role": role, "content": content, **more}


@pytest.fixture
def lost(make_renderer, whole_records):
    """What a template leaves out of one record."""
    import json

    def count(template, *messages, **settings):
        tools = settings.pop("tools", None)
        record = {"messages": list(messages), **({"tools": tools} if tools else {})}
        batch = make_renderer(template, **settings).render(whole_records([json.dumps(record)]))
        assert not batch.refused
        return {name: n.tolist() for name, n in batch.counters.items() if name in LOST}

    return count


def test_what_a_template_leaves_out_is_counted_by_message(lost):
    chat = [said("user", "a"), CALLS, said("tool", "b"), said("system", "c"), said("user", "d")]
    found = lost(TEXTS_ALONE, *chat, tools=[CALL])
    assert found == {
        LOST_CALLS: [1], LOST_TOOLS: [1], LOST_MESSAGES["tool"]: [1], LOST_MESSAGES["system"]: [1]
    }  # fmt: skip
    assert lost("chatml", *chat, tools=[CALL]) == {}


def test_reasoning_that_some_turns_lose_is_counted_where_it_is_lost(lost):
    thinks = [said("assistant", x, reasoning_content=f"r{x}") for x in "bde"]
    chat = [said("user", "a"), thinks[0], said("user", "c"), thinks[1], thinks[2]]
    assert lost(HIDES_REASONING, *chat) == {LOST_REASONING: [2]}
    # A sample for each turn shows each reply as the last.
    assert lost(HIDES_REASONING, *chat, samples="turn") == {}


def test_texts_that_hold_one_another_hide_nothing(lost):
    chat = [said("user", "look x 1"), said("assistant", "look x 1", tool_calls=[CALL])]
    assert lost(TEXTS_ALONE, *chat) == {LOST_CALLS: [1]}
