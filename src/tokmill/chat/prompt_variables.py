"""A variable of a template that makes its prompt what it writes before replies.

Templates may ask for a reply without reasoning, `<think></think>`, if no variable says otherwise:
replies that have some do not begin so then, and their spans cannot be found.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tokmill.chat.conversation import ChatError
from tokmill.chat.template_variables import own_names
from tokmill.chat.values import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tokmill.chat.conversation import Message

    Render = Callable[[list[Message], bool, Mapping[str, bool]], str]

_USER: Message = {"role": "user", "content": "a"}
_REPLIES: tuple[Message, ...] = (
    {"role": "assistant", "content": "b"},
    {"role": "assistant", "content": "b", "reasoning_content": "c"},
)


def option_for_prompt(names: Collection[str], render: Render) -> str:
    """Return the option that makes the prompt a prefix of replies with and without reasoning.

    Args:
        names: the variables that the template reads.
        render: renders messages, with or without a prompt, with some variables.

    Returns:
        '' where no variable does that, true or false.
    """
    for name in own_names(names):
        for value in (True, False):
            given = {name: value}
            if all(_begins(render, given, reply) for reply in _REPLIES):
                return f"--template-kwargs {quoted(json.dumps(given))}"
    return ""


def _begins(render: Render, given: Mapping[str, bool], reply: Message) -> bool:
    try:
        return render([_USER, reply], False, given).startswith(render([_USER], True, given))
    except ChatError:
        return False
