"""Strings of control tokens in texts: found, counted, and split from the text around them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokmill.chat.inline_blocks import CALL_TAGS, REASONING_TAGS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import numpy.typing as npt

    from tokmill.chat.conversation import Message

KEPT_TAGS = "think and tool_call tags kept as text"
KEPT_CONTROL = "strings of control tokens kept as text"

_TAGS = frozenset((*CALL_TAGS, *(tag for tags in REASONING_TAGS for tag in tags if tag[0] == "<")))
"""Tags that no text has by chance, as it may have [THINK]."""


class ControlStringCounter:
    """Counts such strings; pure, so threads may share one."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        strings = set() if vocabulary.parse else {*vocabulary.control, *_TAGS}
        strings -= {"", *vocabulary.parsed}
        self.strings = strings
        """What is counted."""
        self._patterns = patterns(strings)
        self._find = re.compile(control_pattern(strings)).findall

    def notice(self, messages: list[Message], noticed: Counter[str]) -> None:
        """Count the strings of each kind in the messages of a conversation."""
        for message in messages:
            self._notice(message["content"], noticed)
            if reasoning := message.get("reasoning_content"):
                self._notice(reasoning, noticed)

    def in_column(self, texts: pa.StringArray) -> dict[str, npt.NDArray[np.int64]]:
        """Return the same for the n texts of a column: (n,) by name; empty where there is none."""
        if not holds(texts, self._patterns):
            return {}
        found: dict[str, npt.NDArray[np.int64]] = {}
        held = np.zeros(len(texts), bool)
        for pattern in self._patterns:
            held |= pc.match_substring_regex(texts, pattern).to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(held).tolist():
            noticed = Counter[str]()
            self._notice(texts[row].as_py(), noticed)
            for name, n in noticed.items():
                found.setdefault(name, np.zeros(len(texts), np.int64))[row] = n
        return found

    def _notice(self, text: str, noticed: Counter[str]) -> None:
        for string in self._find(text):
            noticed[KEPT_TAGS if string in _TAGS else KEPT_CONTROL] += 1


def patterns(strings: Iterable[str]) -> list[str]:
    """Return regular expressions for strings: one for each character that they begin with."""
    groups = groupby(sorted(strings), lambda string: string[0])
    return [control_pattern(group) for _, group in groups]


def holds(texts: pa.StringArray, patterns: Sequence[str]) -> bool:
    """Return whether one of the `patterns` is found in the texts of a column, or across two.

    Takes 0.1 ms a megabyte: all texts are one, and from each first character, mostly "<", Arrow
    jumps to the next.
    """
    _, offsets, data = texts.buffers()
    if data is None:
        return False
    edges = np.frombuffer(offsets, np.int32)[[texts.offset, texts.offset + len(texts)]]
    whole = pa.StringArray.from_buffers(1, pa.py_buffer(edges), data)
    return any(pc.match_substring_regex(whole, pattern)[0].as_py() for pattern in patterns)


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
"""What stands in a conversation as known templates write it: the first string, then the others."""

_SHORTEST = 3
"""A control token of fewer characters stands in any text, such as the sign ÷."""


class RenderedTexts:
    """Recognises rendered conversations by known frames and a tokenizer's control tokens."""

    def __init__(self, control: Collection[str]) -> None:
        tags = {*CALL_TAGS, *(tag for tags in REASONING_TAGS for tag in tags)}
        strings = {s for s in control if len(s.strip()) >= _SHORTEST} - tags
        self._search = re.compile(control_pattern(strings)).search
        self._patterns = patterns({*strings, *(frame[-1] for frame in _FRAMES)})

    def sign(self, text: str) -> str:
        """Return what shows that a text is a rendered conversation; '' where nothing does."""
        for first, *others in _FRAMES:
            position = text.find(first)
            if position >= 0 and all(text.find(other, position) >= 0 for other in others):
                return " … ".join([first, *map(str.strip, others)])
        found = self._search(text)
        return found[0] if found else ""

    def in_column(self, texts: pa.StringArray) -> npt.NDArray[np.int64] | None:
        """Return which texts of a column are, as 0 and 1: (n,); None where none is."""
        if not holds(texts, self._patterns):
            return None
        found = np.array([bool(self.sign(text)) for text in texts.to_pylist()], np.int64)
        return found if found.any() else None


_NEVER = "(?!)"


def control_pattern(strings: Iterable[str]) -> str:
    """Give the regular expression of control strings: leftmost, and of those the longest.

    It is a tree by characters, so that hundreds of reserved tokens cost no more than one.
    """
    root: dict[str, Any] = {}
    for string in sorted(filter(None, strings)):
        node = root
        for character in string:
            node = node.setdefault(character, {})
        node[""] = {}
    return _branches(root) if root else _NEVER


def _branches(node: dict[str, Any]) -> str:
    """Write the ways on from a node; where a string ends in it, going on is optional."""
    ways = [
        re.escape(character) + (_branches(child) if child.keys() != {""} else "")
        for character, child in node.items()
        if character
    ]
    if not ways:
        return ""
    body = ways[0] if len(ways) == 1 else f"(?:{'|'.join(ways)})"
    return f"(?:{body})?" if "" in node else body


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What a template needs to know of a tokenizer.

    `control`: id of every control token by its string. `eos`, `bos`: their strings, '' if there is
    none. `named`: its tokens by what its files call them, such as `pad_token`. `parse`: control
    tokens' strings in messages become those tokens. `parsed`: added tokens that are none, whose
    strings in messages become them anyway.
    """

    control: Mapping[str, int]
    eos: str
    bos: str
    named: Mapping[str, str]
    parse: bool = False
    parsed: frozenset[str] = frozenset()


class TokenSplitter:
    """Cuts text at control tokens; of strings that begin together the longest is the token."""

    def __init__(self, control: Collection[str]) -> None:
        self._split = re.compile(f"({control_pattern(control)})").split
        self._reach = max(map(len, control), default=1) - 1
        # A token that stands across an edge has one of these before it, and one behind.
        self._before = frozenset("".join(string[:-1] for string in control))
        self._behind = frozenset("".join(string[1:] for string in control))

    def __call__(self, text: str) -> list[str]:
        """Give text, token, text, …, text: tokens stand at odd places."""
        return self._split(text)

    def crosses(self, left: str, right: str) -> bool:
        """Say whether a token begins in one text and ends in the next."""
        if left[-1:] not in self._before or right[:1] not in self._behind:
            return False
        before = left[-self._reach :]
        position = 0
        for i, piece in enumerate(self._split(before + right[: self._reach])):
            if i % 2 and position < len(before) < position + len(piece):
                return True
            position += len(piece)
        return False
