"""Training templates: for models whose own chat template hides what earlier turns said.

Such a template writes a turn otherwise once later turns follow: it drops old reasoning, or ends the
text with eos. No rendering so far is then a prefix of the whole, and one sample of several turns
would not show what each was asked with. The templates here keep every turn as it is said, have
generation tags, and write chats without reasoning as the model's own template does.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from tokmill.chat.conversation import ChatError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokmill.chat.conversation import Message

    Render = Callable[[list[Message], bool], str]

_PHI = ("<|user|>", "<|assistant|>", "<|end|>")

TRAINING: dict[str, tuple[str, ...]] = {
    "qwen3-training": ("<|im_start|>", "<|im_end|>"),
    "phi-3-training": _PHI,
    "phi-4-mini-training": _PHI,
    "deepseek-r1-training": ("<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
}
"""Their names, for `--template`, and the control tokens that they need."""

_USER: Message = {"role": "user", "content": "a"}
_REPLY: Message = {"role": "assistant", "content": "b"}
_CALL = {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
_PROBES: tuple[tuple[list[Message], bool], ...] = (
    ([_USER, _REPLY], False),
    ([{"role": "system", "content": "s"}, _USER, _REPLY], False),
    ([_USER], True),
    ([_USER, {"role": "assistant", "content": "", "tool_calls": [_CALL]}], False),
)
"""Conversations, and whether a reply is asked for."""


def training_source(name: str) -> str:
    """Return the Jinja source of one of `TRAINING`."""
    directory = files("tokmill.chat") / "training"
    path = directory / f"{name.removesuffix('-training')}.jinja"
    return path.read_text(encoding="utf-8")


def training_template_for(own: Render, make: Callable[[str], Render]) -> str:
    """Return the name of the training template of the same format as a template, or ''.

    `own` renders as that template does; `make` returns the same of a source. They are compared on
    conversations that both can write.
    """
    for name in TRAINING:
        candidate = make(training_source(name))
        if all(_alike(own, candidate, *probe) for probe in _PROBES):
            return name
    return ""


def _alike(own: Render, candidate: Render, messages: list[Message], asks: bool) -> bool:
    try:
        wanted = candidate(messages, asks)
    except ChatError:  # it cannot write that, and will say so
        return True
    try:
        return own(messages, asks) == wanted
    except ChatError:
        return False
