"""Strings of control tokens in texts: find them, and count those that stay text.

A dump that was prepared for another program holds the strings of its control tokens, such as an
`<|endoftext|>` behind every story. Text is data, so they stay text, but they are counted: those of
the run's tokenizer, and the common ones of other families.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy.typing as npt
    import pyarrow as pa

    from tokmill.tokenizer.tokenizer import Tokenizer

OF_OTHERS = (
    "<|endoftext|>", "<|startoftext|>", "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>",
    "<|im_start|>", "<|im_end|>", "<|user|>", "<|assistant|>", "<start_of_turn>", "<end_of_turn>",
    "</s>", "<bos>", "<eos>", "<eod>", "<unk>", "<pad>",
    "<file_sep>", "<|file_sep|>", "<repo_name>", "<|repo_name|>",
    "<fim_prefix>", "<fim_middle>", "<fim_suffix>",
    "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
    "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>",
)  # fmt: skip
"""Strings of control tokens that dumps hold, of any tokenizer. Not `<s>`, which is HTML too."""

_SHORTEST = 3
"""Characters; shorter control tokens, such as ÷, occur in ordinary text."""

_OWN, _OTHER = "control token {} ", "control token {} of another tokenizer "
_INSIDE, _AT_END = "in texts", "at the end of texts"


class Marker(NamedTuple):
    """What a counter counts: a control token's string that stays text.

    `is_own`: whether the run's tokenizer has it. `is_at_end`: whether only white space follows.
    """

    string: str
    is_own: bool
    is_at_end: bool

    @property
    def counter(self) -> str:
        """Return the name of the counter."""
        whose = _OWN if self.is_own else _OTHER
        return whose.format(self.string) + (_AT_END if self.is_at_end else _INSIDE)

    @classmethod
    def of_counter(cls, name: str) -> Marker | None:
        """Return the marker that a counter counts; None for another counter."""
        for is_own, whose in ((False, _OTHER), (True, _OWN)):
            for is_at_end, where in ((True, _AT_END), (False, _INSIDE)):
                before, behind = whose.split("{}")
                if name.startswith(before) and name.endswith(behind + where):
                    string = name.removeprefix(before).removesuffix(behind + where)
                    return cls(string, is_own, is_at_end)
        return None


def control_pattern(strings: Iterable[str]) -> str:
    """Return a regular expression that finds the leftmost string, and of several the longest.

    It is a tree of characters: hundreds of reserved tokens cost no more than one.
    """
    root: dict[str, Any] = {}
    for string in sorted(filter(None, strings)):
        node = root
        for character in string:
            node = node.setdefault(character, {})
        node[""] = {}
    return _branches(root) if root else "(?!)"  # matches nothing


def _branches(node: dict[str, Any]) -> str:
    """Return the pattern of what may follow a node; optional if a string ends at the node."""
    branches = [
        re.escape(character) + (_branches(child) if child.keys() != {""} else "")
        for character, child in node.items()
        if character
    ]
    if not branches:
        return ""
    body = branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
    return f"(?:{body})?" if "" in node else body


class MarkerCounter:
    """Counts the strings of control tokens that stay text; threads may share one.

    `parses`: those of the tokenizer's own control tokens become tokens, and are not counted.
    """

    def __init__(self, tokenizer: Tokenizer, *, parses: bool) -> None:
        own = {token.content for token in tokenizer.added if token.special}
        tokens = {token.content for token in tokenizer.added if not token.special}
        self._own = set() if parses else {string for string in own if len(string) >= _SHORTEST}
        strings = self._own | (set(OF_OTHERS) - own)
        strings -= tokens  # an added token that is no control token is one in any text
        self._find = re.compile(control_pattern(strings)).finditer
        # One pattern for each first character: Arrow then looks for that alone, 17 GB/s.
        firsts = defaultdict(set)
        for string in strings:
            firsts[string[0]].add(string)
        self._patterns = [control_pattern(of_first) for of_first in firsts.values()]

    def count(self, text: pa.LargeStringArray) -> dict[str, npt.NDArray[np.int64]]:
        """Return how many there are in each of n texts: by counter (n,), only if any."""
        import pyarrow.compute as pc

        has_any = np.zeros(len(text), bool)
        for pattern in self._patterns:
            has_any |= pc.match_substring_regex(text, pattern).to_numpy(zero_copy_only=False)
        counts: dict[str, npt.NDArray[np.int64]] = {}
        for number in np.flatnonzero(has_any).tolist():
            for marker in self._markers(text[number].as_py()):
                of_marker = counts.setdefault(marker.counter, np.zeros(len(text), np.int64))
                of_marker[number] += 1
        return counts

    def _markers(self, text: str) -> Iterable[Marker]:
        stop = len(text.rstrip())
        for match in self._find(text):
            yield Marker(match[0], match[0] in self._own, match.end() >= stop)


def kept_markers(counters: Mapping[str, int]) -> dict[Marker, int]:
    """Return the counted markers of a run, the most frequent first."""
    markers = {Marker.of_counter(name): n for name, n in counters.items()}
    known = [(marker, n) for marker, n in markers.items() if marker is not None and n]
    return dict(sorted(known, key=lambda counted: -counted[1]))
