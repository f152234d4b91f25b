"""Training templates: with tags around what is trained, for models whose own template has none.

Some also keep what the own template hides of earlier turns once later turns follow: old reasoning,
or that a turn was the last. One sample of several turns would then not show the prompt that each
reply answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tokmill.chat.conversation import ChatError
from tokmill.chat.own_templates import TRAINING
from tokmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tokmill.chat.conversation import Message

    Template = TypeVar("Template", bound="Renderer")

_USER: Message = {"role": "user", "content": "a"}
_REPLY: Message = {"role": "assistant", "content": "b"}
_FUNCTION = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}
_TOOL = {"type": "function", "function": _FUNCTION}
_CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
_CALLED: Message = {"role": "assistant", "content": "", "tool_calls": [_CALL]}
_RESULT: Message = {"role": "tool", "content": "r", "name": "f", "tool_call_id": "c"}
_PROBES: tuple[tuple[list[Message], list[Any] | None, bool], ...] = (
    ([_USER, _REPLY], None, False),
    ([_USER], None, True),
    ([{"role": "system", "content": "s"}, _USER], None, True),
    ([_USER, _CALLED], None, False),
    ([_USER, _RESULT, _REPLY], None, False),
    ([_USER], [_TOOL], True),
)
"""Conversations to compare, their tools, and whether to ask for a reply.

Each shows the last turns alone, where no template hides anything. Contents without white space at
their ends: versions of one model's template differ in what they strip, and each chat is compared.
"""


class Renderer(Protocol):
    """Renders messages as a template writes them."""

    def text_of(
        self, messages: list[Message], *, tools: list[Any] | None = None, prompt: bool = False
    ) -> str:
        """Return the rendering; raises `ChatError`."""


def twin_of(
    own: Renderer, make: Callable[[str], Template], control: Collection[str]
) -> Template | None:
    """Return the training template that writes small chats as another template does, if one does.

    Both must write the first chat; a later one that one of them refuses is not compared. `make`:
    makes a training template by its name. `control`: the control tokens there are.
    """
    expected = [_written(own, *probe) for probe in _PROBES]
    if expected[0] is None:
        return None
    for name, needed in TRAINING.items():
        if not set(needed) <= set(control):
            continue
        try:
            candidate = make(name)
        except UsageError:  # it does not read a variable of the settings
            continue
        found = [_written(candidate, *probe) for probe in _PROBES]
        if found[0] and all(
            None in pair or pair[0] == pair[1] for pair in zip(found, expected, strict=True)
        ):
            return candidate
    return None


def _written(
    template: Renderer, messages: list[Message], tools: list[Any] | None, prompt: bool
) -> str | None:
    try:
        return template.text_of(messages, tools=tools, prompt=prompt)
    except ChatError:
        return None
