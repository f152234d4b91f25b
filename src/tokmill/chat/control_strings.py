"""Strings of control tokens and tags in texts: find them, split text at them, count them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokmill.tokenizer.markers import control_pattern

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tokmill.chat.conversation import Counts, Message

Tags = tuple[str, str]
"""The tags before and behind a block."""

CALL_TAGS: Tags = ("<tool_call>", "</tool_call>")
THOUGHT_TAGS: Tags = ("<|begin_of_thought|>", "<|end_of_thought|>")
REASONING_TAGS: tuple[Tags, ...] = (("<think>", "</think>"), ("[THINK]", "[/THINK]"), THOUGHT_TAGS)
"""The tags that data sets use for reasoning; templates or tokenizers may know them."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokenizer's control tokens, as templates need them.

    `control`: id of every control token by its string. `eos`, `bos`: their strings, '' for none.
    `named`: tokens by their name in the tokenizer's files, such as `pad_token`. `parse`: strings of
    control tokens in messages become those tokens. `parsed`: added tokens that are no control
    tokens, such as runs of white space; their strings in messages become tokens in any case.
    """

    control: Mapping[str, int]
    eos: str
    bos: str
    named: Mapping[str, str]
    parse: bool = False
    parsed: frozenset[str] = frozenset()


class TokenSplitter:
    """Splits text at the strings of control tokens; of several that match the longest wins."""

    def __init__(self, control: Collection[str]) -> None:
        self._split = re.compile(f"({control_pattern(control)})").split
        self._reach = max(map(len, control), default=1) - 1
        # A token across an edge has one of these characters before the edge, and one behind it.
        self._before = frozenset("".join(string[:-1] for string in control))
        self._behind = frozenset("".join(string[1:] for string in control))

    def __call__(self, text: str) -> list[str]:
        """Return text, token, text, …, text: tokens have odd indices."""
        return self._split(text)

    def crosses(self, left: str, right: str) -> bool:
        """Return whether a token begins in one text and ends in the next."""
        if left[-1:] not in self._before or right[:1] not in self._behind:
            return False
        before = left[-self._reach :]
        position = 0
        for i, piece in enumerate(self._split(before + right[: self._reach])):
            if i % 2 and position < len(before) < position + len(piece):
                return True
            position += len(piece)
        return False


KEPT_TAGS = "think and tool_call tags kept as text"
KEPT_CONTROL = "strings of control tokens kept as text"

_TAGS = frozenset((*CALL_TAGS, *(tag for tags in REASONING_TAGS for tag in tags if tag[0] == "<")))
"""Without [THINK], which ordinary text may hold by chance."""


class ControlStringCounter:
    """Counts strings of control tokens and tags that stay text; threads may share one."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        strings = set() if vocabulary.parse else {*vocabulary.control, *_TAGS}
        strings -= {"", *vocabulary.parsed}
        self.strings = strings
        self._find = re.compile(control_pattern(strings)).findall

    def count(self, messages: list[Message], counts: Counts) -> None:
        """Add the strings in the messages of a conversation to `counts`."""
        for message in messages:
            self._count(message["content"], counts)
            if reasoning := message.get("reasoning_content"):
                self._count(reasoning, counts)

    def _count(self, text: str, counts: Counts) -> None:
        for string in self._find(text):
            counts[KEPT_TAGS if string in _TAGS else KEPT_CONTROL] += 1


RENDERED_TEXTS = "texts wrapped as replies that look like rendered conversations"

_FRAMES = (
    ("<|im_start|>",),
    ("<|start_header_id|>",),
    ("<start_of_turn>",),
    ("<|start|>", "<|message|>"),
    ("[INST]", "[/INST]"),
    ("<|user|>", "<|assistant|>"),
    ("<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>"),
    ("### Instruction:", "### Response:"),
    ("### Human:", "### Assistant:"),
    ("Human: ", "\n\nAssistant: "),
    ("USER: ", "ASSISTANT: "),
)
"""Strings that known templates write around turns: the first, then the others behind it."""

_SHORTEST = 3
"""Characters; shorter control tokens, such as ÷, occur in ordinary text."""


class RenderedTexts:
    """Recognises texts that are rendered conversations: strings of templates or control tokens."""

    def __init__(self, control: Collection[str]) -> None:
        tags = {*CALL_TAGS, *(tag for tags in REASONING_TAGS for tag in tags)}
        strings = {string for string in control if len(string.strip()) >= _SHORTEST} - tags
        self._search = re.compile(control_pattern(strings)).search

    def sign(self, text: str) -> str:
        """Return the strings that show a text to be a rendered conversation; '' if none do."""
        for first, *others in _FRAMES:
            position = text.find(first)
            if position >= 0 and all(text.find(other, position) >= 0 for other in others):
                return " … ".join([first, *map(str.strip, others)])
        match = self._search(text)
        return match[0] if match else ""
