from __future__ import annotations

import pytest

from tokmill.chat.conversation import ChatError
from tokmill.chat.prompt_variables import option_for_prompt


def asking(opens_if):
    """Return a template that asks with an empty block, unless a variable is as it should be."""

    def render(messages, asks, given):
        text = "".join(
            f"<u>{m['content']}"
            if m["role"] == "user"
            else f"<a><think>{m.get('reasoning_content', '')}</think>{m['content']}"
            for m in messages
        )
        prompt = "<a><think>" if opens_if(given) else "<a><think></think>"
        return text + prompt * asks

    return render


@pytest.mark.parametrize("value", [True, False])
def test_the_option_that_makes_the_prompt_begin_every_reply_is_named(value):
    names = {"messages", "bos_token", "tools", "open_thinking", "other"}
    found = option_for_prompt(names, asking(lambda given: given.get("open_thinking") is value))
    said = "true" if value else "false"
    assert found == f"--template-kwargs '{{\"open_thinking\": {said}}}'"


def test_there_is_none_where_no_variable_helps_or_the_template_refuses():
    def refuses(*_):
        raise ChatError("template error", "no")

    assert option_for_prompt({"a"}, asking(lambda _: False)) == ""
    assert option_for_prompt({"a"}, refuses) == ""
    assert option_for_prompt(set(), asking(lambda _: True)) == ""
