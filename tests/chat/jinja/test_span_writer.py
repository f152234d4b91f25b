from __future__ import annotations

import pytest

from tokmill.chat.control_strings import TokenSplitter
from tokmill.chat.conversation import ChatError
from tokmill.chat.jinja.span_writer import ReplyFrame, SpanWriter, check_written, find_reply_frame
from tokmill.chat.segments import Kind, Sample, columns_of
from tokmill.errors import UsageError

CONTROL = {"<s>": 0, "<e>": 1, "<ee>": 2, "<e>!": 3}


def written(parts, roles, weights=None, *, frame=None, separator=""):
    sample = Sample(CONTROL)
    frame = ReplyFrame() if frame is None else frame
    writer = SpanWriter(TokenSplitter(CONTROL), frame)
    weights = weights or [None] * (len(roles) - 1)
    writer.write(parts, roles, weights, sample, separator=separator)
    turns = [[turn.role] for turn in sample.turns]
    columns = columns_of([sample])
    text, ids, table = columns.text.to_pylist(), columns.ids, columns.table
    for part, id_, kind, turn in zip(text, ids, table.kinds, table.turns, strict=True):
        shown = repr(part) if id_ < 0 else f"{part}={id_}"
        turns[turn].append(f"{Kind(kind).name} {shown}")
    return turns


def test_a_token_across_the_edge_of_a_span_is_refused():
    for parts in (["q<", "e>a", ""], ["", "<e>", "!"]):
        with pytest.raises(ChatError) as error:
            written(parts, ["user", "system"])
        assert error.value.reason == "control token across spans"


CUT = TokenSplitter(["<u>", "<a>", "<e>", "<end>"])


def frame(written, prompt, close="", *, reply_as=None):
    """Look at a template that writes `written` for a message, by role."""

    def render(messages, *, prompt):
        text = "".join(written[m["role"]].format(m["content"]) for m in messages)
        return text + (prompt_text if prompt else close)

    def parts(messages):
        if reply_as is None:
            raise ChatError("template error", "the chat template raises: no")
        return [written["user"].format(messages[0]["content"]) + reply_as[0], *reply_as[1:]]

    prompt_text = prompt
    return find_reply_frame(render, parts, CUT)


def test_a_template_that_leaves_replies_out_is_refused_before_any_record():
    def render(messages, *, prompt):
        return "".join(m["content"] for m in messages if m["role"] == "user")

    with pytest.raises(UsageError, match=r"^own\.jinja: writes nothing of a reply that is a text"):
        check_written(render, "own.jinja")


def test_a_template_that_changes_the_letters_of_replies_or_refuses_the_probe_is_taken():
    def refuse(messages, *, prompt):
        raise ChatError("template error", "the chat template raises: no tools")

    check_written(lambda messages, *, prompt: messages[-1]["content"].upper(), "own.jinja")
    check_written(refuse, "own.jinja")


def test_a_header_inside_the_generation_tags_is_trained_unless_it_is_masked(
    make_renderer, shown, whole_records
):
    source = (
        "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}<|im_start|>bot\n"
        "{{ m.content }}<|im_end|>{% endgeneration %}{% else %}[{{ m.content }}]{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>bot\n{% endif %}"
    )
    line = '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}'
    samples = [
        shown(make_renderer(source, **settings).render(whole_records([line])))
        for settings in ({}, {"train": ("-prompt",)}, {"train": ("+prompt",)})
    ]
    trained = "[a]«<|im_start|>bot\nb<|im_end|>»"
    assert samples == [[trained], ["[a]<|im_start|>bot\n«b<|im_end|>»"], [trained]]
