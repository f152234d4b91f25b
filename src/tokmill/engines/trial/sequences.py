"""Texts of several characters that every engine must encode like the reference.

A character in a context (`contexts`) does not test pairs and runs: white space before white space,
a mark before a mark, an apostrophe before a letter that folds to `s`. A difference here refuses an
engine, since no single character is the cause.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from itertools import pairwise, product
from typing import TYPE_CHECKING

from tokmill.engines.trial.character_classes import character_classes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokmill.tokenizer.tokenizer import Tokenizer

_ASCII = " \t\n\r'\"aAsS19!.-_<\x00\x1c"
_CORE = " \n\r\t\xa0\u3000'’aZé中1²!.\u0301\u200d한ſK😀ี"
_RUN_LENGTHS = (2, 3, 4, 5, 8, 17, 33, 130)
_AFTER_RUNS = ("", "a", "1", " a", "\n", "'s", "中")
_CONTRACTIONS = ("s", "t", "re", "ve", "m", "ll", "d")
_FOLDED = {"s": "sSſ", "k": "kK\u212a"}
_PER_TEXT = 32

_LATE_COMPOSITIONS = (
    (0x105D2, 0x307), (0x105DA, 0x307), (0x11382, 0x113C9), (0x11384, 0x113BB), (0x1138B, 0x113C2),
    (0x11390, 0x113C9), (0x113C2, 0x113C2), (0x113C2, 0x113B8), (0x113C2, 0x113C9),
    (0x1611E, 0x1611E), (0x1611E, 0x16129), (0x1611E, 0x1611F), (0x16129, 0x1611F),
    (0x1611E, 0x16120), (0x16D67, 0x16D67), (0x16D63, 0x16D67), (0x16D69, 0x16D67),
)  # fmt: skip
"""Pairs that compose since Unicode 16; Python's tables may be older."""


_BETWEEN = ("", "\u0323", "\u0334")


@cache
def class_sequences() -> tuple[str, ...]:
    """Return pairs and triples of characters of all classes, runs, and contractions."""
    triples = map("".join, product(_CORE, repeat=3))
    runs = (a * length + b for a, length, b in product(_CORE, _RUN_LENGTHS, _AFTER_RUNS))
    return tuple(dict.fromkeys([*_pairs(), *triples, *runs, *_contractions()]))


@cache
def compositions() -> tuple[str, ...]:
    """Return pairs of characters that compose to one, alone and with another mark between."""
    found = [(chr(first), chr(second)) for first, second in _LATE_COMPOSITIONS]
    for characters in character_classes():
        for character in characters if unicodedata.decomposition(characters[0]) else "":
            parts = unicodedata.decomposition(character).split()
            if len(parts) == 2 and "<" not in parts[0]:
                found.append((chr(int(parts[0], 16)), chr(int(parts[1], 16))))
    return tuple(f"{first}{between}{second}" for first, second in found for between in _BETWEEN)


def token_texts(tokenizer: Tokenizer) -> list[str]:
    """Return the texts of tokens of several characters, if they are valid text."""
    library = tokenizer.library()
    size = library.get_vocab_size(with_added_tokens=False)
    texts = library.decode_batch([[id_] for id_ in range(size)], skip_special_tokens=False)
    return list(dict.fromkeys(text for text in texts if len(text) > 1 and "\ufffd" not in text))


def in_lines(texts: Sequence[str]) -> list[list[str]]:
    """Return texts in groups, each of which is first compared as the lines of one text."""
    return [list(texts[start : start + _PER_TEXT]) for start in range(0, len(texts), _PER_TEXT)]


def _pairs() -> Iterator[str]:
    shown = [*_ASCII, *(one[len(one) // 2] for one in character_classes() if not one.isascii())]
    yield from map("".join, product(shown, repeat=2))
    for first, second in pairwise(shown):
        yield f"a{first}{second}{first}a"


def _contractions() -> Iterator[str]:
    for letters in _CONTRACTIONS:
        spellings = product(*(_FOLDED.get(one, one + one.upper()) for one in letters))
        for spelling, before, after in product(
            spellings, ("", "a", " ", "中"), ("", "a", "1", "'")
        ):
            yield f"{before}'{''.join(spelling)}{after}"
    for character in _FOLDED["s"] + _FOLDED["k"] + "ßıİŉ\ufb01\u0345":
        yield from (f"a'{character}", f"'{character}lf", f" '{character} ", f"'l{character}")
