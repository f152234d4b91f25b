from __future__ import annotations

import random

import pytest

from tokmill.chat.conversation import ChatError, Conversation
from tokmill.chat.jinja.template import JinjaTemplate
from tokmill.chat.segments import Sample, columns_of
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
    chats = [chat(rng.randint(1, 12), rng) for _ in range(150)]
    assert samples(source, chats)[0] == samples(source, chats, spans="prefix")[0]


def test_a_long_chat_takes_few_renderings_or_is_refused_with_the_limit():
    long = [{**m, "content": m["content"].strip()} for m in chat(3000, random.Random(0))]
    (written,), n_rendered = samples(PLAIN, [long])
    assert len(written[2]) == len(long)
    assert n_rendered < 12
    strips = [{**m, "content": m["content"] + " "} for m in long]
    assert samples(PLAIN, [strips]) == (["too many turns"], 2)
    tools = [{**m, "reasoning_content": "r"} if m["role"] == "assistant" else m for m in long]
    assert samples(PLAIN, [tools]) == (["too many turns"], 1)
