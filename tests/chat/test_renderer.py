"""Records become samples or rejects, and what is noticed of their replies is counted."""

from __future__ import annotations

import json
from functools import partial

import pytest

from tokmill.chat.conversation import ChatError, Conversation
from tokmill.chat.noticed import (
    ASSISTANT_FIRST,
    EMPTY_REPLIES,
    LOST,
    LOST_CALLS,
    LOST_MESSAGES,
    LOST_REASONING,
    LOST_TOOLS,
    UNENDED_REPLIES,
    WRITTEN_BY,
)
from tokmill.chat.own_templates import own_source
from tokmill.dataset.counts import USUAL

EMPTY_TURN = [{"role": "user", "content": ""}]


def dialog(*contents: str, **fields):
    """Make a record of questions and answers in turn."""
    roles = ("user", "assistant")
    return {
        "messages": [{"role": roles[i % 2], "content": c} for i, c in enumerate(contents)],
        **fields,
    }


@pytest.fixture
def render(make_renderer, whole_records):
    """Render records, lines of JSON or what they stand for, as chatml."""

    def run(*records, template="plain", **settings):
        lines = [r if isinstance(r, str) else json.dumps(r, ensure_ascii=False) for r in records]
        return make_renderer(template, **settings).render(whole_records(lines))

    return run


def refusals(batch):
    return [(row, reject.place.line, reject.reason) for row, reject in batch.refused]


def drops(batch):
    return {reason: rows.tolist() for reason, rows in batch.drops.items()}


def test_records_become_samples_in_order_and_know_their_rows(render, shown):
    batch = render(dialog("a", "b"), dialog("c", "d", "e", "f"))
    assert shown(batch) == ["a«b<eos>»", "c«d<eos>»e«f<eos>»"]
    assert batch.rows.tolist() == [0, 1]
    assert batch.control.tolist() == [-1, -1, 0, -1, -1, 0, -1, -1, 0]
    assert batch.offsets.tolist() == [0, 3, 9]
    assert batch.turn_ends.tolist() == [False, False, True] * 3
    assert (list(batch.refused), drops(batch)) == ([], {})


def test_a_record_that_is_refused_leaves_its_neighbours_alone(render, shown):
    unknown = {"messages": [{"role": "robot", "content": "x"}]}
    batch = render(dialog("a", "b"), "{bad", unknown, dialog("c", "d", extra=1))
    assert shown(batch) == ["a«b<eos>»", "c«d<eos>»"]
    assert batch.rows.tolist() == [0, 3]
    assert refusals(batch) == [(1, 2, "malformed JSON"), (2, 3, "unknown role")]
    assert [reject.raw for _, reject in batch.refused] == [b"raw", b"raw"]


def test_a_record_without_text_is_refused(render, shown):
    batch = render({"messages": EMPTY_TURN}, dialog("a", "b"))
    assert shown(batch) == ["a«b<eos>»"]
    assert refusals(batch) == [(0, 1, "empty")]


def test_a_sample_for_every_turn_has_all_before_it_and_trains_the_last(render, shown):
    batch = render(dialog("a", "b", "c", "d"), dialog("e", "f"), samples="turn")
    assert shown(batch) == ["a«b<eos>»", "ab<eos>c«d<eos>»", "e«f<eos>»"]
    assert batch.rows.tolist() == [0, 0, 1]
    assert batch.turn_ends.nonzero()[0].tolist() == [2, 8, 11]


def test_a_record_without_a_turn_to_train_is_a_drop(render, shown):
    batch = render(dialog("a"), dialog("a", "b", weight=0), dialog("c", "d"), samples="turn")
    assert shown(batch) == ["c«d<eos>»"]
    assert batch.rows.tolist() == [2]
    assert drops(batch) == {"no trained token": [0, 1]}
    assert list(batch.refused) == []


def test_a_record_whose_later_sample_fails_gives_none(render, shown):
    # This template takes one question and one answer, which the first turn alone is.
    records = dialog("a", "b"), dialog("c", "d", "e", "f"), dialog("g", "h")
    batch = render(*records, template="baby-llama2", samples="turn")
    assert shown(batch) == ["a<bos>«b<eos>»", "g<bos>«h<eos>»"]
    assert batch.rows.tolist() == [0, 2]
    assert refusals(batch) == [(1, 2, "not in this template")]
    assert len(batch.offsets) == 3
    assert len(batch.text) == len(batch.control) == len(batch.weights) == batch.offsets[-1]


def test_a_conversation_is_rendered_by_itself_and_raises_what_is_wrong(make_renderer, shown):
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    renderer = make_renderer("baby-llama2", samples="turn")
    batch = renderer.render_conversation(Conversation(messages, [None, None]))
    assert shown(batch) == ["a<bos>«b<eos>»"]
    assert batch.rows.tolist() == [0]
    with pytest.raises(ChatError) as caught:
        renderer.render_conversation(Conversation(messages[:1], [None]))
    assert (caught.value.reason, caught.value.is_drop) == ("no trained token", True)


def said(role, content, **more):
    return {"role": role, "content": content, **more}


@pytest.fixture
def noticed(make_renderer, whole_records):
    """Return what is noticed of samples, each of messages; settings as for `make_renderer`."""

    def find(*samples, template="chatml", **settings):
        lines = [json.dumps({"messages": messages}) for messages in samples]
        batch = make_renderer(template, **settings).render(whole_records(lines))
        return {
            name: counts.tolist() for name, counts in batch.counters.items() if name not in USUAL
        }

    return find


@pytest.mark.parametrize("weight", [{}, {"weight": 1}])  # by columns, and record by record
def test_an_empty_reply_trains_the_end_of_turn_alone_and_is_counted(noticed, weight):
    samples = [
        [
            said("user", "a"),
            said("assistant", "", **weight),
            said("user", "b"),
            said("assistant", ""),
        ],
        [said("user", "a"), said("assistant", "b"), said("user", "c"), said("assistant", "d")],
    ]
    assert noticed(*samples) == {EMPTY_REPLIES: [2, 0]}
    assert noticed(*samples, train=("-eot",)) == {}  # such a sample is dropped, or counts elsewhere


def test_reasoning_and_calls_are_said_too(noticed):
    chat = [said("user", "a"), said("assistant", "", reasoning_content="hm")]
    assert noticed(chat) == {}
    assert noticed(chat, train=("-reasoning",)) == {EMPTY_REPLIES: [1]}


def test_a_reply_without_a_trained_end_of_turn_is_counted(jinja_noticed):
    chatglm = "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% endfor %}"
    prompt = "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
    chat = [said("user", "a"), said("assistant", "b"), said("user", "c"), said("assistant", "d")]
    assert jinja_noticed(chatglm + prompt, chat) == {UNENDED_REPLIES: [2]}
    assert jinja_noticed(chatglm + prompt, chat, train=("-eot",)) == {}
    assert jinja_noticed(chatglm + prompt, chat, train=("+eos",)) == {}
    ended = chatglm.replace("m.content }}", "m.content }}<|end|>")
    assert jinja_noticed(ended + prompt, chat) == {}


def test_an_end_of_turn_behind_the_generation_tag_is_not_trained_by_all_presets(jinja_noticed):
    template = (
        "{% for m in messages %}<|{{ m.role }}|>\n"
        "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
        "{% else %}{{ m.content }}{% endif %}<|end|>{% endfor %}"
    )
    chat = [said("user", "a"), said("assistant", "b")]
    assert jinja_noticed(template, chat) == {}
    assert jinja_noticed(template, chat, preset="trl") == {UNENDED_REPLIES: [1]}


@pytest.fixture
def jinja_noticed(whole_records):
    """Return what is noticed of one chat, written by a Jinja template."""
    from tokmill.chat.control_strings import Vocabulary
    from tokmill.chat.limits import Unlimited
    from tokmill.chat.render_pool import ChatRenderer, Writers
    from tokmill.settings.sft import SftSettings

    control = {"<eos>": 0, "<|user|>": 1, "<|assistant|>": 2, "<|end|>": 3}
    vocabulary = Vocabulary(control, "<eos>", "", {"eos_token": "<eos>"})

    def find(source, messages, **settings):
        chosen = SftSettings(schema="messages", **settings)
        write = partial(Writers(source, Unlimited()).write, vocabulary, chosen)
        renderer = ChatRenderer(chosen, "a template", write)
        batch = renderer.render(whole_records([json.dumps({"messages": messages})]))
        assert not batch.refused
        return {
            name: counts.tolist() for name, counts in batch.counters.items() if name not in USUAL
        }

    return find


@pytest.mark.parametrize("template", ["chatml", "llama3"])
def test_a_system_prompt_that_a_named_role_makes_a_reply_is_counted(noticed, template):
    chat = [said("system", "Be kind."), said("user", "a"), said("assistant", "b")]
    named = {"role_names": ("system=assistant",), "template": template}
    assert noticed(chat, chat[1:], **named)[ASSISTANT_FIRST] == [1, 0]
    assert ASSISTANT_FIRST not in noticed(chat, template=template)


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


FIELDS_DROPPED = (
    "{%- set ns = namespace(kept=[]) -%}{%- for m in messages -%}"
    "{%- set ns.kept = ns.kept + [{'role': m.role, 'content': m.content}] -%}{%- endfor -%}"
    "{%- set messages = ns.kept -%}"
)
"""Before a template, so that it gets no reasoning and no calls, as a family's own may want none."""


@pytest.mark.parametrize(
    "family", ["qwen3-training", "qwen3.5-training", "smollm3-training", "nemotron-3-training"]
)
def test_of_a_family_with_a_training_template_the_count_names_that_one(noticed, family):
    chat = [said("user", "a"), said("assistant", "b", reasoning_content="r")]
    found = noticed(chat, template=FIELDS_DROPPED + own_source(family), date="2026-11-29")
    assert found[LOST_REASONING] == [1]
    assert [name for name in found if name.startswith(WRITTEN_BY)] == [f"{WRITTEN_BY} {family}"]


@pytest.mark.parametrize(
    "source", [TEXTS_ALONE, FIELDS_DROPPED + own_source("qwen2.5-training"), HIDES_REASONING]
)
def test_of_no_family_no_template_is_named(noticed, source):
    thought = said("assistant", "b", reasoning_content="r")
    found = noticed([said("user", "a"), thought, said("user", "c"), thought], template=source)
    assert found[LOST_REASONING]
    assert not [name for name in found if name.startswith(WRITTEN_BY)]
