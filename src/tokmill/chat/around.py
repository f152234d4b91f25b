"""What a template writes around replies, seen by rendering small conversations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tokmill.chat.conversation import ChatError
from tokmill.chat.regions import Around
from tokmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokmill.chat.conversation import Message
    from tokmill.chat.regions import Cutter

ENDLESS = "endless template"
"""Why a record whose rendering does not end is refused."""

_QUESTIONS = ("Qx1", "Qy2")
_REPLY = "Rz3"
_REPLIED = {"role": "assistant", "content": _REPLY}


class Render(Protocol):
    """Renders messages, with or without a prompt to reply, and no marks."""

    def __call__(self, messages: list[Message], *, prompt: bool) -> str:
        """Give the rendering."""


def look_around(
    render: Render, regions: Callable[[list[Message]], list[str]], cut: Cutter
) -> tuple[str, Around]:
    """Give a template's generation prompt, '' if it varies, and what it writes around replies.

    `regions` cuts the rendering of a question and its reply at its span. Of a template that refuses
    these conversations nothing is known: no header, no openers.
    """
    asks: list[list[Message]] = [[{"role": "user", "content": text}] for text in _QUESTIONS]
    try:
        prompts = {_added(render, messages, cut) for messages in asks}
        before, question, _ = render(asks[0], prompt=False).partition(_QUESTIONS[0])
    except ChatError:
        return "", Around()
    prompt = prompts.pop() if len(prompts) == 1 else ""
    openers = frozenset((*cut(prompt)[1:2], *(cut(before)[-2:-1] if question else ())))
    try:
        replied = regions([*asks[0], _REPLIED])
    except ChatError:
        replied = []
    if len(replied) < 3:
        return prompt, Around(prompt, openers)
    return prompt, Around(_header(replied[-3], prompt), openers, _ends(cut(replied[-2])))


def check_written(render: Render, where: str) -> None:
    """Make sure that a template writes replies; one that refuses this conversation may.

    Templates of models that see images may take contents as lists of parts alone, and write
    nothing at all for a text.

    Raises:
        UsageError: it leaves the reply out, or does not end; `where` names the template.
    """
    try:
        written = render([{"role": "user", "content": _QUESTIONS[0]}, _REPLIED], prompt=False)
    except ChatError as error:
        if error.reason == ENDLESS:
            raise UsageError(f"{where}: {error.message}") from None
        return
    if _REPLY.casefold() not in written.casefold():
        raise UsageError(
            f"{where}: writes nothing of a reply that is a text, so that nothing would be trained: "
            "it may be for contents of typed parts, such as images; use another --template"
        )


def _header(before: str, prompt: str) -> str:
    """Give as much of the prompt as stands before a span: the rest may be within."""
    lengths = range(len(prompt), 0, -1)
    return next((prompt[:n] for n in lengths if before.endswith(prompt[:n])), "")


def _ends(span: Sequence[str]) -> bool:
    """Say whether a span's last token has nothing but white space behind it."""
    return len(span) > 1 and not span[-1].strip()


def _added(render: Render, messages: list[Message], cut: Cutter) -> str:
    """Give what the prompt to reply adds, in whole tokens: the end may be written otherwise."""
    without, with_prompt = (render(messages, prompt=prompt) for prompt in (False, True))
    if with_prompt.startswith(without):
        return with_prompt[len(without) :]
    old, new = cut(without), cut(with_prompt)
    n_same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), len(new))
    return "".join(new[n_same:])
