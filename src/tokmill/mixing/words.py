"""The words of a text without what writers vary: case, width, punctuation, blanks.

A word is letters and digits; Han, Kana and Hangul have no blanks between words, so each character
is one. Words get numbers, so that runs of words are found as runs of ids are.
"""

from __future__ import annotations

import re
from itertools import repeat
from typing import TYPE_CHECKING
from unicodedata import normalize

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy.typing as npt

UNKNOWN = 0xFFFF_FFFF
"""The number of a word that no held-out text has."""

_ALONE = "\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_ALONE}]|(?:(?![{_ALONE}])[^\W_])+")
_ASCII_WORD = re.compile("[a-z0-9]+")


def words_of(text: str) -> list[str]:
    """Return the words of a text in NFKC and lower case, without punctuation and blanks."""
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    return _WORD.findall(normalize("NFKC", text).casefold())


def numbered(words: Iterable[str], numbers: dict[str, int]) -> npt.NDArray[np.uint32]:
    """Return the numbers of words, (n,) uint32; a new word gets the next one."""
    return np.array([numbers.setdefault(word, len(numbers)) for word in words], np.uint32)


def known_numbers(words: Iterable[str], numbers: Mapping[str, int]) -> npt.NDArray[np.uint32]:
    """Return the numbers of words, (n,) uint32; `UNKNOWN` for words without one."""
    return np.fromiter(map(numbers.get, words, repeat(UNKNOWN)), np.uint32)
