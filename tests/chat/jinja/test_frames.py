from __future__ import annotations

import random

import pytest

from tokmill.chat.conversation import ChatError, Conversation
from tokmill.chat.jinja import spans as frames
from tokmill.chat.jinja.template import JinjaTemplate
from tokmill.chat.segments import Sample, columns_of
from tokmill.errors import TokmillError
from tokmill.settings.sft import SftSettings

CONTROL = {"<eos>": 0, "<|end|>": 1}
PLAIN = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content|trim }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
LAST_DIFFERS = (
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}"
    "{{ '<|end|>' if not loop.last or add_generation_prompt else '<|end|>\n<eos>' }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)
LOOKS_INTO = (
    "{% for m in messages %}[{{ m.role }}]{% if 'x' in m.content and m.role == 'assistant' %}"
    "{{ m.content }}{% else %}({{ m.content.split('y')[-1] }}){% endif %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
UPPER = PLAIN.replace("m.content|trim", "m.content|upper")


def chat(n_turns, rng):
    texts = ["a", " b ", "", "x", "ys", "<|end|>", "\ue000", "the (same)", "the (same)"]
    turns = [
        {"role": role, "content": rng.choice(texts)}
        for _ in range(n_turns)
        for role in ("user", "assistant")
    ]
    return [{"role": "system", "content": "S"}, *turns] if rng.random() < 0.3 else turns


def samples(source, chats, **settings):
    template = JinjaTemplate(
        source, control=CONTROL, variables={"eos_token": "<eos>"},
        settings=SftSettings(**settings), where="t.jinja",
    )  # fmt: skip
    n_rendered = []
    compiled = template._compiled
    object.__setattr__(template, "_compiled", _Counted(compiled, n_rendered))
    written = []
    for messages in chats:
        sample = Sample(CONTROL)
        try:
            template.render(Conversation(messages, [None] * len(messages)), sample)
        except ChatError as error:
            written.append(error.reason)
            continue
        columns = columns_of([sample])
        kinds, roles = columns.table.kinds.tolist(), columns.table.roles.tolist()
        written.append((columns.text.to_pylist(), kinds, roles, columns.table.turns.tolist()))
    return written, len(n_rendered)


class _Counted:
    """Counts what a compiled template renders."""

    def __init__(self, compiled, rendered):
        self._compiled, self._rendered = compiled, rendered

    def __getattr__(self, name):
        return getattr(self._compiled, name)

    def render(self, variables):
        self._rendered.append(len(variables["messages"]))
        return self._compiled.render(variables)


@pytest.mark.parametrize("source", [PLAIN, LAST_DIFFERS, LOOKS_INTO, UPPER])
def test_spans_by_frames_are_those_of_prefixes(source):
    rng = random.Random(7)
    chats = [chat(rng.randint(1, 5), rng) for _ in range(150)]
    by_frames, n_rendered = samples(source, chats)
    by_prefix, n_by_prefix = samples(source, chats, spans="prefix")
    assert by_frames == by_prefix
    if source is PLAIN:
        assert n_rendered < 0.8 * n_by_prefix


def test_a_long_chat_takes_few_renderings_or_is_refused_with_the_limit(monkeypatch):
    long = [{**m, "content": m["content"].strip()} for m in chat(3000, random.Random(0))]
    (written,), n_rendered = samples(PLAIN, [long])
    assert len(written[2]) == len(long)
    assert n_rendered < 12
    strips = [{**m, "content": m["content"] + " "} for m in long]
    assert samples(PLAIN, [strips]) == (["too many turns"], 2)
    tools = [{**m, "reasoning_content": "r"} if m["role"] == "assistant" else m for m in long]
    assert samples(PLAIN, [tools]) == (["too many turns"], 1)


ASKS_OTHERWISE = (
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]"
    "{% if 'x' not in messages[-1].content %} {% endif %}{% endif %}"
)
"""Its prompt depends on the question, which the text around the replies does not show."""


def test_a_template_for_which_frames_are_wrong_ends_the_run(monkeypatch):
    monkeypatch.setattr(frames, "CHECKED_SHARE", 1)
    turns = [
        [
            {"role": role, "content": text}
            for text in ("ab", "cd")
            for role in ("user", "assistant")
        ],
        [{"role": role, "content": text} for text in ("x", "y") for role in ("user", "assistant")],
    ]
    assert len(samples(PLAIN, turns)[0]) == 2
    with pytest.raises(TokmillError, match=r"in an unknown way \(message 2 is trained at"):
        samples(ASKS_OTHERWISE, turns)
    assert len(samples(ASKS_OTHERWISE, turns, spans="prefix")[0]) == 2
