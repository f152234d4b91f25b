"""Training templates: for models whose own chat template renders earlier turns differently.

Such a template changes a turn once later turns follow: it drops old reasoning, or ends the text
with eos. One sample of several turns would then not show the prompt that each reply answers. The
templates here keep every turn, have generation tags, and write chats without reasoning as the
model's own template does.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from tokmill.chat.conversation import ChatError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokmill.chat.conversation import Message
    from tokmill.chat.jinja.span_writer import Render

_PHI = ("<|user|>", "<|assistant|>", "<|end|>")

TRAINING: dict[str, tuple[str, ...]] = {
    "qwen3-training": ("<|im_start|>", "<|im_end|>"),
    "phi-3-training": _PHI,
    "phi-4-mini-training": _PHI,
    "deepseek-r1-training": ("<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
}
"""The control tokens that each template needs, by its name for --template."""

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


def training_source(name: str) -> str:
    """Return the Jinja source of one of `TRAINING`."""
    path = files("tokmill.chat") / "training" / f"{name.removesuffix('-training')}.jinja"
    return path.read_text(encoding="utf-8")


def training_template_for(own: Render, make: Callable[[str], Render]) -> str:
    """Return the name of the training template that writes like another template, or ''.

    `own`: renders with the other template. `make`: returns what renders with a source.
    """
    for name in TRAINING:
        candidate = make(training_source(name))
        if all(_is_alike(own, candidate, *probe) for probe in _PROBES):
            return name
    return ""


def _is_alike(own: Render, candidate: Render, messages: list[Message], prompt: bool) -> bool:
    try:
        expected = candidate(messages, prompt=prompt)
    except ChatError:  # the training template refuses such conversations, with a message
        return True
    try:
        return own(messages, prompt=prompt) == expected
    except ChatError:
        return False
