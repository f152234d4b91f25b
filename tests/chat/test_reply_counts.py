from __future__ import annotations

import json
from functools import partial

import pytest

from tokmill.chat.noticed import ASSISTANT_FIRST, EMPTY_REPLIES, UNENDED_REPLIES


def said(role, content, **more):
    return {"role": role, "content": content, **more}


@pytest.fixture
def noticed(make_renderer, whole_records):
    """Return what is noticed of samples, each of messages; settings as for `make_renderer`."""

    def find(*samples, template="chatml", **settings):
        lines = [json.dumps({"messages": messages}) for messages in samples]
        batch = make_renderer(template, **settings).render(whole_records(lines))
        return {name: counts.tolist() for name, counts in batch.counters.items()}

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


def test_empty_replies_that_are_not_trained_are_no_matter(noticed):
    chat = [said("user", "a"), said("assistant", ""), said("user", "b"), said("assistant", "c")]
    assert noticed(chat) == {EMPTY_REPLIES: [1]}
    assert noticed(chat, turns="last") == {}
    assert noticed([said("user", "a"), said("assistant", "", train=False)]) == {}


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


def test_control_tokens_and_line_ends_of_the_template_make_no_reply(jinja_noticed):
    template = (
        "{% for m in messages %}<|{{ m.role }}|>\n"
        "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|end|>\n<eos>"
        "{% endgeneration %}{% else %}{{ m.content }}<|end|>\n{% endif %}{% endfor %}"
    )
    assert jinja_noticed(template, [said("user", "a"), said("assistant", "")]) == {
        EMPTY_REPLIES: [1]
    }
    assert jinja_noticed(template, [said("user", "a"), said("assistant", "b")]) == {}


@pytest.fixture
def jinja_noticed(whole_records):
    """Return what is noticed of one chat, written by a Jinja template."""
    from tokmill.chat.control_strings import Vocabulary
    from tokmill.chat.render_pool import ChatRenderer, Writers
    from tokmill.settings.sft import SftSettings

    control = {"<eos>": 0, "<|user|>": 1, "<|assistant|>": 2, "<|end|>": 3}
    vocabulary = Vocabulary(control, "<eos>", "", {"eos_token": "<eos>"})

    def find(source, messages, **settings):
        chosen = SftSettings(schema="messages", **settings)
        write = partial(Writers(source, vocabulary).write, chosen)
        renderer = ChatRenderer(chosen, "a template", write)
        batch = renderer.render(whole_records([json.dumps({"messages": messages})]))
        assert not batch.refused
        return {name: counts.tolist() for name, counts in batch.counters.items()}

    return find


@pytest.mark.parametrize("template", ["chatml", "llama3"])
def test_a_system_prompt_that_a_named_role_makes_a_reply_is_counted(noticed, template):
    chat = [said("system", "Be kind."), said("user", "a"), said("assistant", "b")]
    named = {"role_names": ("system=assistant",), "template": template}
    assert noticed(chat, chat[1:], **named)[ASSISTANT_FIRST] == [1, 0]
    assert ASSISTANT_FIRST not in noticed(chat, template=template)
