"""Training templates: for models whose own chat template renders earlier turns differently.

Such a template changes a turn once later turns follow: it drops old reasoning, or ends the text
with eos. One sample of several turns would then not show the prompt that each reply answers. The
templates here keep every turn, have generation tags, and write chats without reasoning as the
model's own template does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from tokmill.chat.conversation import ChatError
from tokmill.chat.own_templates import TRAINING
from tokmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tokmill.chat.conversation import Message

    Template = TypeVar("Template", bound="Renderer")

_USER: Message = {"role": "user", "content": "a"}
_REPLY: Message = {"role": "assistant", "content": "b"}
_CALL = {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
_PROBES: tuple[tuple[list[Message], bool], ...] = (
    ([_USER, _REPLY], False),
    ([{"role": "system", "content": "s"}, _USER, _REPLY], False),
    ([_USER], True),
    ([_USER, {"role": "assistant", "content": "", "tool_calls": [_CALL]}], False),
)
"""Conversations to compare, and whether to render them with a generation prompt."""


class Renderer(Protocol):
    """Renders messages as a template writes them."""

    def text_of(self, messages: list[Message], *, prompt: bool = False) -> str:
        """Return the rendering; raises `ChatError`."""


def twin_of(
    own: Renderer, make: Callable[[str], Template], control: Collection[str]
) -> Template | None:
    """Return the training template that writes small chats as another template does, if one does.

    `make`: makes a training template by its name. `control`: the control tokens there are.
    """
    for name, needed in TRAINING.items():
        if not set(needed) <= set(control):
            continue
        try:
            candidate = make(name)
        except UsageError:  # it does not read a variable of the settings
            continue
        if all(_is_alike(own, candidate, *probe) for probe in _PROBES):
            return candidate
    return None


def _is_alike(own: Renderer, candidate: Renderer, messages: list[Message], prompt: bool) -> bool:
    try:
        expected = candidate.text_of(messages, prompt=prompt)
    except ChatError:  # the training template refuses such conversations, with a message
        return True
    try:
        return own.text_of(messages, prompt=prompt) == expected
    except ChatError:
        return False
