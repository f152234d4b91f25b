"""Strings of control tokens, and tags of reasoning and calls, that stay text in messages."""

from __future__ import annotations

import re
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokmill.chat.inline import CALL_TAGS, REASONING_TAGS
from tokmill.chat.shield import control_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from tokmill.chat.conversation import Message
    from tokmill.chat.templates import Vocabulary

KEPT_TAGS = "think and tool_call tags kept as text"
KEPT_CONTROL = "strings of control tokens kept as text"

_TAGS = frozenset((*CALL_TAGS, *(tag for tags in REASONING_TAGS for tag in tags if tag[0] == "<")))
"""Tags that no text has by chance, as it may have [THINK]."""


class KeptStrings:
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
