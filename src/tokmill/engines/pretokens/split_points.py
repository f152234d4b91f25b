"""Finds the split points of a `SplitRule` in text, by the classes of neighbouring characters."""

from __future__ import annotations

import threading
import unicodedata
from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from tokmill.engines.pretokens.split_rule import is_plain
from tokmill.errors import TokenizerError
from tokmill.tokenizer.tokenizer_json import SPACE_MARK, WHITE_SPACE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from tokmill.engines.pretokens.split_rule import SplitRule

# No split point is beside glue; strong glue may include a space after it in its grapheme.
# Characters without a neighbour in any token share a class, the others have their own.
_UNSEEN, _SPACE, _GLUE, _STRONG_GLUE, _LONE, _WORD, _SINGLE, _FIRST_OWN = range(8)
_N_CLASSES = 2048
"""Further characters of a Unigram share classes, which only removes split points."""


class SplitPoints:
    """Finds split points, and classifies new characters; safe to call from several threads.

    `normalizers`: the steps of the tokenizer's normalizer. `words`: its pre-tokenizer, returning
    the strings of words.

    Raises:
        TokenizerError: its normalizer replaces a space by something else.
    """

    def __init__(
        self,
        rule: SplitRule,
        normalizers: Sequence[Callable[[str], str]],
        words: Callable[[str], list[str]],
    ) -> None:
        self._rule = rule
        self._normalizers = normalizers
        # No later step sees the output of the last one.
        self._n_meeting = max(1, len(normalizers) + rule.composes)
        self._words = words
        self._lock = threading.Lock()
        self._class_of = np.zeros(0x110000, np.uint16)
        self._joins = _default_joins(drops_space=rule.drops_space)
        self._own: dict[str, int] = {}
        self._predecessors: dict[str, set[str]] = defaultdict(set)
        for first, seconds in (rule.followers or {}).items():
            for second in seconds:
                self._predecessors[second].add(first)
        if self._classified(" ") != _SPACE:
            raise TokenizerError("its normalizer leaves no space between words")
        self._learn(np.arange(0x80, dtype=np.uint32))

    def find(
        self, data: npt.NDArray[np.uint8]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Find the split points of UTF-8 text of at least one byte.

        Documents may be concatenated: a pair across their bounds can only remove a split point.

        Returns:
            starts of pretokens, in bytes, without 0: (n,); and whether a word begins there: (n,).
        """
        codes, starts = _code_points(data)
        classes = self._class_of[codes]
        if not classes.all():
            self._learn(codes[classes == _UNSEEN])
            classes = self._class_of[codes]
        pairs = classes[:-1].astype(np.int32)
        pairs *= _N_CLASSES
        pairs += classes[1:]
        points = np.flatnonzero(~self._joins[pairs]) + 1
        if self._rule.drops_space:
            begins_word = classes[points - 1] == _SPACE
            is_space = classes[np.maximum(points - 2, 0)] != _STRONG_GLUE
        else:
            begins_word = classes[points] == _SPACE
            following = classes[np.minimum(points + 1, len(classes) - 1)]
            is_space = (following != _GLUE) & (following != _STRONG_GLUE)
        keep = is_space | ~begins_word
        points, begins_word = points[keep], begins_word[keep]
        return (points if starts is None else starts[points]), begins_word

    def _learn(self, codes: npt.NDArray[np.uint32]) -> None:
        with self._lock:
            for code in np.unique(codes).tolist():
                self._class_of[code] = self._classified(chr(code))

    def _classified(self, character: str) -> int:
        forms = self._forms(character)
        if forms is None or not all(map(is_plain, chain.from_iterable(forms[: self._n_meeting]))):
            return _GLUE if self._is_weak(character, forms) else _STRONG_GLUE
        if self._rule.glued.intersection(chain.from_iterable(forms)):
            return _GLUE
        normal = forms[-1]
        if character == " " or (self._rule.drops_space and character.isspace()):
            return _SPACE if self._is_space(normal) else _GLUE
        if self._rule.lone_characters:
            words = self._words(f"a{normal}a")
            if len(words) == 3 and words[0] == words[2] == "a":
                return _LONE
        if not all(forms) or any(
            part.isspace() or part == SPACE_MARK for part in chain.from_iterable(forms)
        ):
            return _GLUE
        if self._rule.followers is None:
            return _WORD
        return self._own_class(normal) if len(normal) == 1 else _GLUE

    def _forms(self, character: str) -> list[str] | None:
        """Return a character inside a word, and its form after each step.

        None if a step changes the neighbours. If the characters of all forms are plain, every step
        treats each side of a split point as if the other did not exist.
        """
        forms, text = [character], f"a{character}a"
        for normalize in self._normalizers:
            text = normalize(text)
            if len(text) < 2 or text[0] != "a" or text[-1] != "a":
                return None
            forms.append(text[1:-1])
        return forms

    def _is_weak(self, character: str, forms: Sequence[str] | None) -> bool:
        """Return whether a space after a character that is not plain is a grapheme of its own.

        True for a mark. A carriage return joins only a line feed.
        """
        if character == "\r":
            forms = self._forms("\r\n")
            return forms is not None and self._is_space(forms[-1])
        return unicodedata.category(character).startswith("M")

    def _is_space(self, normal: str) -> bool:
        if self._rule.drops_space:
            return normal != "" and not normal.strip(WHITE_SPACE)
        return normal == " "

    def _own_class(self, character: str) -> int:
        """Return the class of a normalized character; set which of its pairs join."""
        followers = (self._rule.followers or {}).get(character, frozenset())
        predecessors = self._predecessors.get(character, set())
        if not followers and not predecessors:
            return _SINGLE
        if character not in self._own:
            n_own = _N_CLASSES - _FIRST_OWN
            class_ = self._own[character] = _FIRST_OWN + len(self._own) % n_own
            for second in followers & self._own.keys():
                self._joins[class_ * _N_CLASSES + self._own[second]] = True
            for first in predecessors & self._own.keys():
                self._joins[self._own[first] * _N_CLASSES + class_] = True
        return self._own[character]


def _default_joins(*, drops_space: bool) -> npt.NDArray[np.bool_]:
    """Return whether each pair of classes joins, before any character is known: (n * n,) bool."""
    joins = np.zeros((_N_CLASSES, _N_CLASSES), np.bool_)
    joins[_WORD, _WORD] = joins[_SPACE, _SPACE] = True
    if drops_space:
        joins[:, _SPACE] = True
    else:
        joins[_SPACE, :] = True
    for glue in (_GLUE, _STRONG_GLUE):
        joins[glue, :] = joins[:, glue] = True
    return joins.reshape(-1)


def _code_points(
    data: npt.NDArray[np.uint8],
) -> tuple[npt.NDArray[np.integer], npt.NDArray[np.int64] | None]:
    """Return the characters of UTF-8, and their first bytes; None if the text is ASCII."""
    if data.max() < 0x80:
        return data, None
    codes = np.frombuffer(data.tobytes().decode().encode("utf-32-le"), np.uint32)
    return codes, np.flatnonzero((data & 0xC0) != 0x80)
