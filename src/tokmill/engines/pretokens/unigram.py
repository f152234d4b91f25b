"""The best path of a Unigram model through a part of a word, if rounding cannot change it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST_PART = 256
"""Most normalized characters of a part of a word."""

LONGEST_WORD_BYTES = 1 << 14
LOWEST_SCORE = -100.0
_MARGIN = 1e-4
"""A word has at most as many parts as bytes, so at most 2**22 normalized characters. The library's
sums stay above -110 * 2**22, within 2**29, where an addition of doubles has an error of at most
2**-25. Two paths of 256 tokens through a part keep their order if they differ by more than
2 * 256 * 2**-25, which is 2e-5."""

_UNKNOWN_PENALTY = 10.0
_BEGINS = (0.0, -1)
"""The entry of a proper prefix of a token."""


class Unigram:
    """A vocabulary with scores from `LOWEST_SCORE` to 0.

    The library searches the best path through a complete word and sums scores from the left, so
    the better of two (almost) equal paths depends on the text before. `-` and `---` make `----` in
    two ways with the same score: such a part has no result.
    """

    def __init__(self, vocab: Sequence[tuple[str, float]], unknown_id: int) -> None:
        self._unknown_id = unknown_id
        self._unknown = (min(score for _, score in vocab) - _UNKNOWN_PENALTY, unknown_id)
        self._tokens: dict[str, tuple[float, int]] = {}
        for token, _ in vocab:
            for stop in range(len(token) - 1, 0, -1):
                if token[:stop] in self._tokens:
                    break
                self._tokens[token[:stop]] = _BEGINS
        self._tokens.update({token: (score, id_) for id_, (token, score) in enumerate(vocab)})

    def encode(self, text: str) -> list[int] | None:
        """Return the ids of normalized text inside a word; None if they may depend on the rest.

        The text is between two places that every path passes.
        """
        n = len(text)
        if n > LONGEST_PART:
            return None
        best = [0.0] + [-math.inf] * n
        second = [-math.inf] * (n + 1)
        came = [(0, 0)] * (n + 1)
        for start in range(n):
            for stop, (score, id_) in self._tokens_at(text, start):
                total = best[start] + score
                if total > best[stop]:
                    second[stop], best[stop], came[stop] = best[stop], total, (start, id_)
                elif total > second[stop]:
                    second[stop] = total
        return self._ids(best, second, came)

    def _tokens_at(self, text: str, start: int) -> list[tuple[int, tuple[float, int]]]:
        """Return the stop, score and id of each token that begins at a character."""
        first = self._tokens.get(text[start])
        found = [(start + 1, self._unknown if first is None or first is _BEGINS else first)]
        for stop in range(start + 2, len(text) + 1):
            entry = self._tokens.get(text[start:stop])
            if entry is None:
                break
            if entry is not _BEGINS:
                found.append((stop, entry))
        return found

    def _ids(
        self, best: Sequence[float], second: Sequence[float], came: Sequence[tuple[int, int]]
    ) -> list[int] | None:
        """Return the ids of the best path; consecutive unknown tokens become one."""
        ids: list[int] = []
        stop = len(best) - 1
        while stop:
            if best[stop] - second[stop] < _MARGIN:
                return None
            stop, id_ = came[stop]
            if id_ != self._unknown_id or ids[-1:] != [id_]:
                ids.append(id_)
        return ids[::-1]
