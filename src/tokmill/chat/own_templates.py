"""The templates that come with tokmill: Jinja files, their names, and the tokens that they need.

A training template has tags around what is trained, for models whose own template has none. Some
also keep what the own template hides of earlier turns once later turns follow: old reasoning, or
that a turn was the last. One sample of several turns would then not show the prompt that each reply
answers.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tokmill.chat.conversation import ChatError
from tokmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tokmill.chat.control_strings import Vocabulary
    from tokmill.chat.conversation import Message

    Template = TypeVar("Template", bound="Renderer")

_CHATML = ("<|im_start|>", "<|im_end|>")
_PHI = ("<|user|>", "<|assistant|>", "<|end|>")
_LLAMA3 = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
_MISTRAL = ("<s>", "</s>")
_BOS = "bos_token"
_NANOCHAT = tuple(
    f"<|{name}_{edge}|>"
    for name in ("user", "assistant", "python", "output")
    for edge in ("start", "end")
)

BUILT_IN: dict[str, tuple[str, ...]] = {
    "chatml": _CHATML,
    "llama3": (_BOS, *_LLAMA3),
    "alpaca": (),
    "plain": (),
    "minimind": _CHATML,
    "torchtune": _CHATML,
    "nanochat": ("<|bos|>", *_NANOCHAT),
    "baby-llama2": (_BOS,),
}
"""The control tokens that each template needs; these templates mark every part of a sample."""

TRAINING: dict[str, tuple[str, ...]] = {
    "qwen2.5-training": _CHATML,
    "qwen3-training": _CHATML,
    "minimind-training": _CHATML,
    "llama-3-training": _LLAMA3,
    "llama-3.1-training": _LLAMA3,
    "mistral-training": _MISTRAL,
    "mistral-v1-training": _MISTRAL,
    "gemma-training": ("<start_of_turn>", "<end_of_turn>"),
    "phi-3-training": _PHI,
    "phi-4-mini-training": _PHI,
    "phi-4-training": (*_CHATML, "<|im_sep|>"),
    "deepseek-training": ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "deepseek-r1-training": ("<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
}
"""The same of templates that mark replies with generation tags, as a model's own template may."""

_INCLUDE = re.compile(r" *\{%- include '(.+)' -%\}\n").sub
NAMES = (*BUILT_IN, *TRAINING)


@cache
def own_source(name: str) -> str:
    """Return the Jinja source of one of `NAMES`, with the parts that it includes."""
    folder = files("tokmill.chat") / "templates"

    def part(found: re.Match[str]) -> str:
        return (folder / "parts" / f"{found[1]}.jinja").read_text(encoding="utf-8")

    return _INCLUDE(part, (folder / f"{name}.jinja").read_text(encoding="utf-8"))


def own_name(source: str) -> str:
    """Return the name of the template with this source; '' if it did not come with tokmill."""
    return next((name for name in NAMES if own_source(name) == source), "")


def check_tokens(name: str, vocabulary: Vocabulary) -> None:
    """Check that a tokenizer has the control tokens of one of `NAMES`.

    Raises:
        UsageError: one is missing.
    """
    needed = (BUILT_IN | TRAINING)[name]
    strings = [vocabulary.bos or "bos" if string == _BOS else string for string in needed]
    missing = [string for string in strings if string not in vocabulary.control]
    if missing == ["bos"]:
        raise UsageError(
            f"template {name} writes bos, which this tokenizer does not name: give --bos-token"
        )
    if missing:
        raise UsageError(
            f"template {name} needs the control tokens {', '.join(missing)}, which this "
            "tokenizer does not have: use its own (--template=tokenizer), plain or alpaca"
        )


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
